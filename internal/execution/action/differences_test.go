package action

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDifferences verifies that a change is reported with its values, except values that may
// contain a password.
func TestDifferences(t *testing.T) {
	t.Parallel()
	containers := func(password string) []any {
		return []any{map[string]any{"name": "app", "env": []any{map[string]any{"name": "PASSWORD", "value": password}}}}
	}
	for name, tc := range map[string]struct {
		reason  string
		was, is any
		want    []string
	}{
		"Same":     {"numbers are the same however they came", int64(3), float64(3), nil},
		"Number":   {"what it was helps", 3, 4, []string{"f was 3, and is 4"}},
		"Names":    {"a list of texts, too", []any{"app:1"}, []any{"app:2"}, []string{`f was ["app:1"], and is ["app:2"]`}},
		"Gone":     {"nothing is a value", 3, nil, []string{"f was 3, and is null"}},
		"Object":   {"the data of a ConfigMap", map[string]any{"password": "hunter2"}, map[string]any{"password": "hunter3"}, []string{"f has changed"}},
		"Objects":  {"the environment of a container", containers("hunter2"), containers("hunter3"), []string{"f has changed"}},
		"NoObject": {"neither what it was, nor what it is", "a", containers("hunter3"), []string{"f has changed"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, describeDifferences(map[string]any{"f": tc.was}, map[string]any{"f": tc.is})); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}
