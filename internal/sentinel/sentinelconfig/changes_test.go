package sentinelconfig_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/sentinel/sentinelconfig"
)

func TestChanges(t *testing.T) {
	before := v1alpha1.SentinelConfigSpec{
		ResourceType: "clusters", BackoffReady: "30m", HyperfleetAPI: v1alpha1.HyperfleetAPI{URL: "http://fleet"},
		Broker: v1alpha1.Broker{Type: v1alpha1.BrokerRabbitMQ, Topic: "events", URL: "amqp://broker-a"},
	}
	cases := map[string]struct {
		reason string
		change func(*v1alpha1.SentinelConfigSpec)
		want   []string
	}{
		"Scalar": {"what it was and is", func(s *v1alpha1.SentinelConfigSpec) { s.BackoffReady = "1h" }, []string{`spec.backoffReady: "30m" → "1h"`}},
		"Added": {"it was not given", func(s *v1alpha1.SentinelConfigSpec) {
			s.ShardSelector = &v1alpha1.ShardSelector{MatchLabels: map[string]string{"region": "eu"}}
		}, []string{`spec.shardSelector.matchLabels.region: (not set) → "eu"`}},
		"URL":    {"it may hold a password", func(s *v1alpha1.SentinelConfigSpec) { s.Broker.URL = "amqp://broker-b" }, []string{"spec.broker.url"}},
		"Long":   {"a line has an end", func(s *v1alpha1.SentinelConfigSpec) { s.Broker.Topic = strings.Repeat("x", 200) }, []string{`spec.broker.topic: "events" → "` + strings.Repeat("x", 99) + "…"}},
		"Secret": {"nothing else can have changed", func(*v1alpha1.SentinelConfigSpec) {}, []string{"a Secret of the spec"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			after := before.DeepCopy()
			tc.change(after)
			got, err := sentinelconfig.DiffSpecs(&before, after)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
