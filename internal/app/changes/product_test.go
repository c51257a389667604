package changes_test

import (
	"testing"

	"github.com/fleetloop/fleetloop/internal/app/changes"
)

// TestProduct: summaries call the sender Fleetloop, or what the settings say, and
// the source stays.
func TestProduct(t *testing.T) {
	t.Parallel()
	for product, want := range map[string]string{
		"": "Fleetloop cordoned node n1 due to xid", "NVSentinel": "NVSentinel cordoned node n1 due to xid", "Acme Fleet": "Acme Fleet cordoned node n1 due to xid",
	} {
		to := newSink(t, nil)
		env := map[string]string{"CHANGE_EVENTS_ENABLED": "true", "CHANGE_EVENTS_ENDPOINT": to.URL, "CHANGE_EVENTS_CLUSTER_NAME": "prod"}
		if product != "" {
			env["CHANGE_EVENTS_PRODUCT"] = product
		}
		s, _, _ := newSinks(t, mustLoad(t, env, ""))
		s.SendChangeEvent(t.Context(), cordon)
		if got := to.nextEvent(t).payload; got.Summary != want || got.Source != "nvsentinel/fault-quarantine" {
			t.Errorf("product %q: %s says %q, want %q", product, got.Source, got.Summary, want)
		}
	}
}

// TestSourceIsRequired: a component that does not name itself would be taken for
// the one of the decision record.
func TestSourceIsRequired(t *testing.T) {
	t.Parallel()
	p, _ := newProcess(t)
	if s, err := changes.New(changes.Config{}, "", p); err == nil {
		t.Errorf("sinks without a source: %v, want an error", s)
	}
}

// TestStrict: a sink that is strict gets the fields of the decision record alone,
// and the others get all.
func TestStrict(t *testing.T) {
	t.Parallel()
	strict, other := newSink(t, nil), newSink(t, nil)
	file := "change_events:\n  sinks:\n    - {name: other, endpoint: " + other.URL + "}\n"
	s, _, _ := newSinks(t, mustLoad(t, map[string]string{
		"CHANGE_EVENTS_ENABLED": "true", "CHANGE_EVENTS_ENDPOINT": strict.URL, "CHANGE_EVENTS_CLUSTER_NAME": "prod", "CHANGE_EVENTS_BASE_FIELDS_ONLY": "true",
	}, file))
	s.SendChangeEvent(t.Context(), cordon)
	if got := strict.nextEvent(t).payload; got.Summary != "" || got.ID != "" || got.Outcome != "" || got.HealthEvent == nil {
		t.Errorf("the strict sink got %+v", got)
	}
	if got := other.nextEvent(t).payload; got.Summary == "" || got.ID == "" {
		t.Errorf("the other sink got %+v", got)
	}
}
