package sentinelconfig_test

import (
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/sentinel/sentinelconfig"
)

func TestSmallest(t *testing.T) {
	t.Parallel()
	s, err := sentinelconfig.Translate(&v1alpha1.SentinelConfigSpec{
		ResourceType:  "clusters",
		HyperfleetAPI: v1alpha1.HyperfleetAPI{URL: "http://api:8080"},
		Broker:        v1alpha1.Broker{Type: v1alpha1.BrokerRabbitMQ, Topic: "events", URL: "amqp://guest:guest@rabbitmq:5672/"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.Sentinel.MaxAgeReady != 30*time.Minute || s.Sentinel.PayloadKeys != "camel" || s.Broker.Exchange != "events" {
		t.Errorf("got %+v", s)
	}
}
