package action

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestReplicasChanged verifies that a plan reports replicas only if their number changes and
// exists.
func TestReplicasChanged(t *testing.T) {
	t.Parallel()
	object := func(kind string, spec map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"kind": kind, "spec": spec}}
	}
	of := func(n int64) *unstructured.Unstructured {
		return object("Deployment", map[string]any{"replicas": n})
	}
	for name, tc := range map[string]struct {
		reason       string
		live, result *unstructured.Unstructured
		want         string
	}{
		"New":        {"there was none", nil, of(3), "0 -> 3"},
		"NewAndNone": {"there was none, and there will be none", nil, of(0), ""},
		"More":       {"it changes", of(3), of(5), "3 -> 5"},
		"None":       {"it changes", of(3), of(0), "3 -> 0"},
		"Same":       {"it stays", of(3), of(3), ""},
		"Unsaid":     {"one is what an object has that says nothing", object("ReplicaSet", nil), of(2), "1 -> 2"},
		"Autoscaler": {"it has bounds, and no replicas", nil, object("HorizontalPodAutoscaler", map[string]any{"maxReplicas": int64(9)}), ""},
		"NoSpec":     {"a ConfigMap has none", nil, &unstructured.Unstructured{Object: map[string]any{"kind": "ConfigMap"}}, ""},
		"OwnMeaning": {"elsewhere it may be something else", nil, object("Copy", map[string]any{"replicas": "many"}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := describeReplicaChange(tc.live, tc.result); got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}
