package consoleapp

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/console"
)

// TestDecide covers that decisions are made about the resource that the person's own token reads, once.
func TestDecide(t *testing.T) {
	old := time.Now().UTC().Add(-time.Hour)
	var requests atomic.Int32
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if r.Header.Get("Authorization") != "Bearer alice-token" || !strings.HasSuffix(r.URL.Path, "/clusters/c-1") {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = fmt.Fprintf(w, `{"id":"c-1","name":"eu-1","generation":2,"labels":{"region":"eu"},"created_time":%q,"updated_time":%[1]q,`+
			`"status":{"phase":"Ready","observed_generation":1,"last_updated_time":%[1]q,"last_transition_time":%[1]q,"conditions":[]}}`, old.Format(time.RFC3339))
	}))
	defer api.Close()
	f, err := newFleetClient(Part{Console: console.Config{FleetAPI: api.URL}})
	if err != nil {
		t.Fatal(err)
	}
	client, err := f.clientWithToken("")
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdle()
	config := func(region string) *v1alpha1.SentinelConfig {
		s := &v1alpha1.SentinelConfig{Spec: v1alpha1.SentinelConfigSpec{
			ResourceType: "clusters", HyperfleetAPI: v1alpha1.HyperfleetAPI{URL: "http://elsewhere:8000"},
			Broker: v1alpha1.Broker{Type: v1alpha1.BrokerNATS, Topic: "t", URL: "nats://broker:4222"}, ShardSelector: &v1alpha1.ShardSelector{MatchLabels: map[string]string{"region": region}},
		}}
		s.Namespace, s.Name = "ops", "clusters"
		return s
	}
	alice := console.Person{}
	alice.Token = "alice-token"

	broken := config("eu")
	broken.Spec.Broker.URL = ""
	all, err := f.explainDecisions(t.Context(), alice, []*v1alpha1.SentinelConfig{config("eu"), config("us"), broken}, "c-1")
	if err != nil || len(all) != 3 {
		t.Fatalf("decided %+v, %v", all, err)
	}
	d := all[0]
	if d.State != "due" || !strings.Contains(d.Message, "backoff-expired") || d.Endpoint != "http://elsewhere:8000" {
		t.Errorf("decided %+v", d)
	}
	if d.Inputs == nil || d.Inputs.Generation != 2 || d.Inputs.ObservedGeneration != 1 || d.Inputs.Phase != "Ready" {
		t.Errorf("the inputs are %+v", d.Inputs)
	}
	if all[1].State != "not_watched" || all[2].State != "error" || !strings.Contains(all[2].Message, "spec.broker.url") {
		t.Errorf("the others decided %+v", all[1:])
	}
	elsewhere := 0
	for i := range int32(2) {
		part := config("eu")
		part.Spec.Sharding = &v1alpha1.Sharding{Count: new(int32(2)), Index: &i}
		d, err := f.explainDecisions(t.Context(), alice, []*v1alpha1.SentinelConfig{part}, "c-1")
		if err == nil && d[0].State == "not_watched" && strings.Contains(d[0].Message, "its id is not in part ") {
			elsewhere++
		} else if err != nil || d[0].State != "due" {
			t.Errorf("a part decided %+v, %v", d, err)
		}
	}
	if elsewhere != 1 {
		t.Errorf("%d of 2 parts do not watch the cluster, want 1", elsewhere)
	}
	if n := requests.Load(); n != 3 {
		t.Errorf("%d requests for three decisions, want one each", n)
	}
	if all, err := f.explainDecisions(t.Context(), console.Person{}, []*v1alpha1.SentinelConfig{config("eu")}, "c-1"); err != nil || all[0].State != "error" {
		t.Errorf("without a token: %+v, %v", all, err)
	}
}
