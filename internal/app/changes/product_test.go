package changes_test

import "testing"

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
		s, _, _ := newSinks(t, must(t, env, ""), false)
		s.SendChangeEvent(t.Context(), cordon)
		if got := to.next(t).payload; got.Summary != want || got.Source != "nvsentinel/fault-quarantine" {
			t.Errorf("product %q: %s says %q, want %q", product, got.Source, got.Summary, want)
		}
	}
}
