package gardener_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/gardener"
	"github.com/fleetloop/fleetloop/internal/settings"
)

func TestConfig(t *testing.T) {
	tests := map[string]struct {
		reason string
		env    map[string]string
		want   gardener.Config
		says   string
	}{
		"Defaults": {
			reason: "nothing is given",
			want:   gardener.Config{Namespace: "garden-fundament", QPS: gardener.DefaultQPS, Burst: gardener.DefaultBurst, Timeout: gardener.DefaultTimeout},
		},
		"All": {
			reason: "everything is",
			env:    map[string]string{"GARDENER_KUBECONFIG": "/k", "GARDENER_NAMESPACE": "garden-x", "GARDENER_QPS": "2.5", "GARDENER_BURST": "3", "GARDENER_TIMEOUT": "5s"},
			want:   gardener.Config{Kubeconfig: "/k", Namespace: "garden-x", QPS: 2.5, Burst: 3, Timeout: 5 * time.Second},
		},
		"NoRequests": {reason: "a limit of 0 is none", env: map[string]string{"GARDENER_QPS": "0"}, says: "GARDENER_QPS"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got gardener.Config
			_, err := settings.Load(&got, settings.Source{Env: func(k string) (string, bool) { v, ok := test.env[k]; return v, ok }})
			if test.says != "" {
				if err == nil || !strings.Contains(err.Error(), test.says) {
					t.Errorf("%s: got %v", test.reason, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("%s: %s (-want +got)", test.reason, diff)
			}
		})
	}
}

func TestNewNeedsToKnowWhere(t *testing.T) {
	for says, cfg := range map[string]gardener.Config{
		"GARDENER_KUBECONFIG": {Namespace: "garden-x"},
		"kubeconfig":          {Kubeconfig: "/there/is/none", Namespace: "garden-x"},
	} {
		if _, err := gardener.New(cfg, "i"); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want it to say %q", err, says)
		}
	}
}
