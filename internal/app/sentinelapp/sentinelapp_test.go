package sentinelapp_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
	"sigs.k8s.io/yaml"

	"github.com/fleetloop/fleetloop/internal/app/sentinelapp"
	"github.com/fleetloop/fleetloop/internal/processtest"
)

func TestMain(m *testing.M) {
	// The Pub/Sub library brings a goroutine that begins with the process.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

// An outcome is what one call of the command line left behind.
type outcome struct {
	stdout, stderr string
	err            error
}

// allOutput is every text that a user could see.
func (o outcome) allOutput() string {
	text := o.stdout + o.stderr
	if o.err != nil {
		text += o.err.Error()
	}
	return text
}

func runCLI(ctx context.Context, t *testing.T, env map[string]string, args ...string) outcome {
	t.Helper()
	var stdout, stderr processtest.Buffer
	lookup := func(name string) (string, bool) {
		value, ok := env[name]
		return value, ok
	}
	cmd := sentinelapp.NewCommand(&stdout, &stderr, lookup) //nolint:contextcheck // the command is given it below
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	return outcome{stdout.String(), stderr.String(), err}
}

// writeConfig makes a configuration file.
func writeConfig(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "sentinel-config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// newTrap is a server that must receive no connection. It counts them.
func newTrap(t *testing.T) (addr string, visits *atomic.Int64) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	visits = new(atomic.Int64)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			visits.Add(1)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l.Addr().String(), visits
}

// specification is the folder of the excerpts of the specification, see tools/dev.
const specification = "../../../test/specification/service/"

// TestSamples holds that the configuration files of the sentinel's
// specification are understood byte for byte, each with the broker settings
// that come with them.
func TestSamples(t *testing.T) {
	t.Parallel()
	const endpoint = "http://hyperfleet-api.hyperfleet-system.svc.cluster.local:8080"
	common := []string{"poll_interval: 5s", "endpoint: " + endpoint, "timeout: 10s", "resource_id: .id", "resource_type: .kind"}
	cases := map[string]struct {
		reason  string
		file    string
		watches string
		want    []string
	}{
		"Template": {
			"the first sample", specification + "sentinel-config.yaml", "clusters (region=us-east)",
			[]string{"max_age_not_ready: 10s", "max_age_ready: 30m0s", "region: .metadata.labels.region"},
		},
		"USEast": {
			"one of two shards", specification + "sentinel-us-east-config.yaml", "clusters (region=us-east)",
			[]string{"max_age_not_ready: 10s", "max_age_ready: 30m0s", "region: .metadata.labels.region"},
		},
		"USWest": {
			"each shard has its own ages", specification + "sentinel-us-west-config.yaml", "clusters (region=us-west)",
			[]string{"max_age_not_ready: 15s", "max_age_ready: 1h0m0s", "region: .metadata.labels.region"},
		},
		"NodePools": {
			"another resource type, and no selector", specification + "sentinel-nodepools-config.yaml", "nodepools (all resources)",
			[]string{"max_age_not_ready: 5s", "max_age_ready: 10m0s", "cluster_id: .ownerResource.id"},
		},
		"Shipped": {
			"the complete one that users start from", "../../../deploy/sentinel/sentinel-config.yaml", "clusters (all resources)",
			[]string{"max_age_not_ready: 10s", "max_age_ready: 30m0s", "display_name: "},
		},
	}
	brokers := map[string]map[string]string{"rabbitmq": brokerVariables(t, "broker-rabbitmq.yaml"), "gcp-pubsub": brokerVariables(t, "broker-pubsub.yaml")}
	brokers["rabbitmq"]["BROKER_SUBSCRIPTION_ID"] = "for adapters only" // shared with them, and none of our business
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for broker, env := range brokers {
				got := runCLI(t.Context(), t, env, "validate", "--config", tc.file)
				if want := "valid: watches " + tc.watches + ", broker " + broker + "\n"; got.err != nil || got.stdout != want {
					t.Errorf("%s: got %q and %v, want %q", tc.reason, got.stdout, got.err, want)
				}
			}
			shown := runCLI(t.Context(), t, nil, "config", "show", "--config", tc.file)
			for _, want := range append(common, tc.want...) {
				if !strings.Contains(shown.stdout, want) {
					t.Errorf("%s: config show lacks %q: %v\n%s", tc.reason, want, shown.err, shown.stdout)
				}
			}
		})
	}
}

// TestHyperFleetSample holds that the file for the public API is valid and
// sends no number as a text.
func TestHyperFleetSample(t *testing.T) {
	t.Parallel()
	const file = "../../../deploy/sentinel/hyperfleet-sentinel-config.yaml"
	got := runCLI(t.Context(), t, nil, "validate", "--config", file)
	if want := "valid: watches clusters (all resources), broker not checked (BROKER_TYPE is not set)\n"; got.err != nil || got.stdout != want || got.stderr != "" {
		t.Errorf("got %q, warnings %q and %v, want %q and no warning", got.stdout, got.stderr, got.err, want)
	}
	if shown := runCLI(t.Context(), t, nil, "config", "show", "--config", file); !strings.Contains(shown.stdout, "generation: cel:resource.generation") {
		t.Errorf("the generation is not sent as a number: %v\n%s", shown.err, shown.stdout)
	}
}

// brokerVariables are the data of one of the specification's ConfigMaps, as
// envFrom gives them to a container.
func brokerVariables(t *testing.T, file string) map[string]string {
	t.Helper()
	raw, err := os.ReadFile(specification + file)
	if err != nil {
		t.Fatal(err)
	}
	var configMap struct{ Data map[string]string }
	if err := yaml.Unmarshal(raw, &configMap); err != nil || configMap.Data["BROKER_TYPE"] == "" {
		t.Fatalf("%s: %v, data %v", file, err, configMap.Data)
	}
	return configMap.Data
}

// TestConfigFlag verifies the values of --config. A value that is not a path is the name of an
// object in a cluster, which must exist.
func TestConfigFlag(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "missing.yaml")
	cases := map[string]struct {
		reason string
		args   []string
		want   []string
	}{
		"Missing": {"the file is not there", []string{"--config", missing}, []string{missing}},
		"AName":   {"says what to give instead", []string{"--config", "cluster-sentinel-default"}, []string{`"cluster-sentinel-default"`, "./cluster-sentinel-default.yaml"}},
		"AFolder": {"can not be read", []string{"--config", t.TempDir() + "/"}, []string{"directory"}},
		"None":    {"then everything must come from elsewhere", nil, []string{`"resource_type"`, `"hyperfleet_api.endpoint"`}},
		"Stray":   {"an argument that means nothing", []string{"sentinel-config.yaml"}, []string{"sentinel-config.yaml"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := runCLI(t.Context(), t, map[string]string{"BROKER_TYPE": "nats", "BROKER_URL": "nats://127.0.0.1:1", "KUBECONFIG": missing}, tc.args...)
			if got.err == nil {
				t.Fatalf("%s: got no error", tc.reason)
			}
			for _, want := range tc.want {
				if !strings.Contains(got.err.Error(), want) {
					t.Errorf("%s: the error lacks %q: %v", tc.reason, want, got.err)
				}
			}
		})
	}

	env := map[string]string{"SENTINEL_RESOURCE_TYPE": "workloads", "HYPERFLEET_API_ENDPOINT": "http://127.0.0.1:1"}
	if got := runCLI(t.Context(), t, env, "validate"); got.err != nil || !strings.HasPrefix(got.stdout, "valid: watches workloads") {
		t.Errorf("no file, all from the environment: got %q and %v", got.stdout, got.err)
	}
	if got := runCLI(t.Context(), t, env, "validate", "--resource-type", "manifests"); !strings.HasPrefix(got.stdout, "valid: watches manifests") {
		t.Errorf("a flag outranks the environment: got %q and %v", got.stdout, got.err)
	}
}

func TestBrokerType(t *testing.T) {
	t.Parallel()
	file := writeConfig(t, plain)
	cases := map[string]struct {
		reason string
		env    map[string]string
		want   []string
	}{
		"Missing":   {"it is required to start", nil, []string{"BROKER_TYPE", "rabbitmq", "pubsub", "nats"}},
		"Empty":     {"as good as missing", map[string]string{"BROKER_TYPE": ""}, []string{"BROKER_TYPE"}},
		"Unknown":   {"with what there is", map[string]string{"BROKER_TYPE": "kafka"}, []string{"BROKER_TYPE", `"kafka"`, "rabbitmq", "pubsub", "nats"}},
		"NoHost":    {"RabbitMQ is somewhere", map[string]string{"BROKER_TYPE": "rabbitmq"}, []string{"rabbitmq", "host"}},
		"NoProject": {"a topic is in a project", map[string]string{"BROKER_TYPE": "pubsub"}, []string{"project_id"}},
		"NoURL":     {"NATS is somewhere", map[string]string{"BROKER_TYPE": "nats"}, []string{"nats", "url"}},
		"BadPort": {
			"not a number",
			map[string]string{"BROKER_TYPE": "rabbitmq", "BROKER_HOST": "h", "BROKER_PORT": "many"},
			[]string{"BROKER_PORT", "many"},
		},
		"BadExchangeType": {
			"with what there is",
			map[string]string{"BROKER_TYPE": "rabbitmq", "BROKER_HOST": "h", "BROKER_EXCHANGE_TYPE": "fan"},
			[]string{"exchange_type", `"fan"`, "fanout"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := runCLI(t.Context(), t, tc.env, "--config", file)
			if got.err == nil {
				t.Fatalf("%s: got no error", tc.reason)
			}
			for _, want := range tc.want {
				if !strings.Contains(got.err.Error(), want) {
					t.Errorf("%s: the error lacks %q: %v", tc.reason, want, got.err)
				}
			}
		})
	}
}
