package operator_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/sentinel/operator"
)

// loadErrors returns the counts of failed loads, by shard and resource type.
func (r *run) loadErrors(t *testing.T) map[string]float64 {
	t.Helper()
	got := map[string]float64{}
	r.eachSeries(t, func(name string, labels map[string]string, value float64) {
		if name == "hyperfleet_sentinel_api_errors_total" && labels["operation"] == "config_load" {
			got[labels["shard"]+" "+labels["resource_type"]] += value
		}
	})
	return got
}

// wantLoadErrors waits until one series has a count, or zero, and is the only one.
func (r *run) wantLoadErrors(t *testing.T, series string, counted bool) {
	t.Helper()
	eventually(t, func() error {
		got := r.loadErrors(t)
		if n, ok := got[series]; !ok || len(got) != 1 || n > 0 != counted {
			return fmt.Errorf("load errors are %v, want only %q, counted: %t", got, series, counted)
		}
		return nil
	})
}

// TestEachFailedLoadIsCounted checks that a configuration that was never loaded counts as a failed
// load: a missing object, a refused one, and one whose Secret is missing.
func TestEachFailedLoadIsCounted(t *testing.T) {
	t.Parallel()
	h := newHost(t, "creds")
	one, all := h.start(t, "one", "us"), h.start(t, "", "them")
	one.wantLoadErrors(t, "not loaded unknown", true)

	h.apply(t, spec("one", func(s *v1alpha1.SentinelConfigSpec) {
		s.Decision = &v1alpha1.Decision{Profile: "expression", Result: "resource.generation +"}
	}))
	for _, r := range []*run{one, all} {
		eventually(t, func() error {
			if got := r.loadErrors(t); got["not loaded clusters"] < 1 {
				return fmt.Errorf("load errors are %v", got)
			}
			return nil
		})
	}
	h.apply(t, spec("one", func(s *v1alpha1.SentinelConfigSpec) {
		s.Broker.URL = ""
		s.Broker.CredentialsSecretRef = &v1alpha1.SecretRef{Name: "creds"}
	}))
	before := maps.Clone(all.loadErrors(t))
	eventually(t, func() error {
		if got := all.loadErrors(t); got["not loaded clusters"] <= before["not loaded clusters"] {
			return fmt.Errorf("load errors are %v, as before the Secret was missed", got)
		}
		return nil
	})

	h.apply(t, spec("one"))
	for _, r := range []*run{one, all} {
		r.wantLoadErrors(t, "all clusters", false)
	}
	h.kubectl(t, "delete", "sentinelconfigs", "one")
	one.wantLoadErrors(t, "not loaded unknown", true)
	eventually(t, func() error {
		if got := all.loadErrors(t); len(got) != 0 {
			return fmt.Errorf("load errors are %v, and nothing is to be loaded", got)
		}
		return nil
	})
}

// TestRoleOfTheSpecification checks a sentinel with only the permissions of the specification. It
// logs and counts its Kubernetes events, without refused requests.
func TestRoleOfTheSpecification(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for _, role := range (operator.SentinelRoles{Namespace: h.namespace, Sharding: true}).BuildRoles() {
		role.Rules = []rbacv1.PolicyRule{
			{APIGroups: []string{"hyperfleet.redhat.com"}, Resources: []string{"sentinelconfigs"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{"hyperfleet.redhat.com"}, Resources: []string{"sentinelconfigs/status"}, Verbs: []string{"get"}},
		}
		if _, err := h.client.RbacV1().Roles(h.namespace).Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	r := h.start(t, "one", "us")
	h.apply(t, spec("one"))
	h.wantAnnounced(t, brokerA, "a", "b", "c")
	eventually(t, func() error {
		if !strings.Contains(r.log.String(), "ConfigLoaded") {
			return errors.New("the log has no event ConfigLoaded")
		}
		return nil
	})
	counted := false
	r.eachSeries(t, func(name string, labels map[string]string, value float64) {
		counted = counted || name == "hyperfleet_sentinel_config_events_total" && labels["reason"] == "ConfigLoaded" && value == 1
	})
	if !counted {
		t.Error("the event is not counted")
	}
	if strings.Contains(r.log.String(), `"level":"error"`) {
		t.Error("the log has an error")
	}
	if n := strings.Count(r.log.String(), "kubernetes events forbidden"); n != 1 {
		t.Errorf("%d lines say that events are forbidden, want one", n)
	}
}
