package intake_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/fleetloop/fleetloop/internal/nodefault/intake"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// all is the configuration of all kinds of intake, as in a process.
type all struct {
	Auth       intake.AuthConfig      `key:"auth"`
	Conditions intake.ConditionConfig `key:"node_conditions"`
	GRPC       intake.GRPCConfig      `key:"grpc"`
	HTTP       intake.HTTPConfig      `key:"http"`
	Store      intake.StoreConfig     `key:"store"`
}

// TestDefaults verifies that the defaults of the settings equal the defaults in the code.
func TestDefaults(t *testing.T) {
	var got all
	if _, err := settings.Load(&got, settings.Source{}); err != nil {
		t.Fatal(err)
	}
	want := all{
		Auth:       intake.AuthConfig{Mode: intake.AuthModeCluster, CacheTTL: intake.DefaultAuthCacheTTL},
		Conditions: intake.DefaultConditionConfig(),
		GRPC:       intake.GRPCConfig{SocketMode: intake.DefaultGRPCSocketMode, MaxMessageBytes: intake.DefaultGRPCMaxMessageBytes, ShutdownTimeout: intake.DefaultGRPCShutdownTimeout},
		HTTP:       intake.HTTPConfig{MaxBodyBytes: intake.DefaultMaxBodyBytes, Rate: intake.DefaultCallerRate, Burst: intake.DefaultCallerBurst, Alerts: intake.DefaultAlertConfig()},
		Store:      intake.StoreConfig{QueueSize: intake.DefaultQueueSize, Timeout: intake.DefaultStoreTimeout},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	text := `
node_conditions:
  presets: [npd]
  conditions:
  - {type: DiskFailing, unhealthyStatus: ["True", Unknown], for: 2m, errorCode: SMART, recommendedAction: REPLACE_VM, fatal: true}
  resources:
  - {resource: nvidia.com/gpu, fatal: true}
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var got all
	if _, err := settings.Load(&got, settings.Source{File: path}); err != nil {
		t.Fatal(err)
	}
	want := intake.ConditionConfig{
		Presets:    []string{"npd"},
		Conditions: []intake.NodeCondition{{Type: "DiskFailing", UnhealthyStatus: []corev1.ConditionStatus{"True", "Unknown"}, For: 2 * time.Minute, ErrorCode: "SMART", RecommendedAction: "REPLACE_VM", Fatal: true}},
		Resources:  []intake.NodeResource{{Resource: "nvidia.com/gpu", For: 5 * time.Minute, ErrorCode: "ResourceShortfall", Fatal: true}},
	}
	if diff := cmp.Diff(want, got.Conditions); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := intake.NewConditionSet(got.Conditions); err != nil {
		t.Error(err)
	}
}
