package operator_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/kube"
	"github.com/fleetloop/fleetloop/internal/processtest"
	"github.com/fleetloop/fleetloop/internal/sentinel"
	"github.com/fleetloop/fleetloop/internal/sentinel/operator"
	"github.com/fleetloop/fleetloop/internal/sentinel/sentinelconfig"
	"github.com/fleetloop/fleetloop/internal/telemetry"
)

func TestMain(m *testing.M) {
	// Their logger is one for the process and must be set before clients are
	// used; tests run side by side.
	kube.RedirectLibraryLogs(slog.New(slog.DiscardHandler))
	kubebedtest.Main(m, kubebed.Options{CRDs: []string{"../../../deploy/crds"}})
}

const (
	patience = 90 * time.Second
	every    = 20 * time.Millisecond
)

func eventually(t *testing.T, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("not within %s: %v", patience, err)
		case <-ticker.C:
		}
	}
}

// The addresses that the tests use.
const (
	fleetA  = "http://fleet-a"
	brokerA = "nats://user:canary-a@broker-a" //nolint:gosec // no secret
	brokerB = "nats://user:canary-b@broker-b" //nolint:gosec // no secret
)

// A host is a namespace of the bed with an operator, whose sentinels have fake dependencies.
type host struct {
	bed       *kubebed.Bed
	namespace string
	client    kubernetes.Interface
	account   *rest.Config
	fleet     *Fleet
	brokers   *Brokers
}

// newHost creates a namespace and an account with the permissions of a sentinel that uses the given
// Secrets.
func newHost(t *testing.T, secrets ...string) *host {
	t.Helper()
	h := &host{bed: kubebedtest.Bed(t), namespace: kubebedtest.Namespace(t), fleet: NewFleet("a", "b", "c"), brokers: NewBrokers()}
	var err error
	if h.client, err = kubernetes.NewForConfig(h.bed.Config()); err != nil {
		t.Fatal(err)
	}
	if h.account, err = h.bed.EnsureServiceAccountConfig(t.Context(), h.namespace, operator.SentinelAccount); err != nil {
		t.Fatal(err)
	}
	for _, role := range (operator.SentinelRoles{Namespace: h.namespace, Secrets: secrets, Sharding: true}).BuildRoles() {
		if _, err := h.client.RbacV1().Roles(h.namespace).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		binding := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role.Name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: operator.SentinelAccount, Namespace: h.namespace}},
		}
		if _, err := h.client.RbacV1().RoleBindings(h.namespace).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// A run is an operator that runs.
type run struct {
	*operator.Operator
	log     *processtest.Buffer
	metrics *prometheus.Registry
	cancel  context.CancelFunc
	done    chan error
}

// start runs an operator; an empty name selects all objects of the namespace.
func (h *host) start(t *testing.T, name, identity string, change ...func(*operator.Config, *operator.Deps)) *run {
	t.Helper()
	r := &run{log: &processtest.Buffer{}, metrics: prometheus.NewRegistry(), done: make(chan error, 1)}
	log, err := telemetry.NewLogger(r.log, telemetry.LogConfig{Level: "info"})
	if err != nil {
		t.Fatal(err)
	}
	deps := operator.Deps{Host: h.account, OpenAPI: h.fleet.Open, OpenBroker: h.brokers.Open, Log: log, Registerer: r.metrics}
	deps.Complete = func(s *sentinelconfig.Settings) { s.Sentinel.LogEvents = sentinel.LogEventsDebug }
	cfg := operator.Config{Namespace: h.namespace, Name: name, Identity: identity}
	for _, c := range change {
		c(&cfg, &deps)
	}
	r.Operator, err = operator.New(cfg, deps)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	r.cancel = cancel
	go func() { r.done <- r.Part().Run(ctx) }()
	t.Cleanup(func() {
		r.stop(t)
		if strings.Contains(r.log.String(), "canary") {
			t.Error("a password stands in the log")
		}
		if t.Failed() {
			lines := strings.SplitAfter(r.log.String(), "\n")
			t.Logf("the operator said last:\n%s", strings.Join(lines[max(0, len(lines)-40):], ""))
		}
	})
	return r
}

// stop ends the operator and waits for that. It may be called again.
func (r *run) stop(t *testing.T) {
	t.Helper()
	r.cancel()
	if err := <-r.done; err != nil {
		t.Errorf("told to stop, the operator ended with %v", err)
	}
	r.done <- nil
}

// spec returns a SentinelConfig for the first fleet and broker.
func spec(name string, change ...func(*v1alpha1.SentinelConfigSpec)) *v1alpha1.SentinelConfig {
	sc := &v1alpha1.SentinelConfig{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "SentinelConfig"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.SentinelConfigSpec{
			ResourceType: "clusters", PollInterval: "50ms", BackoffNotReady: "1h",
			HyperfleetAPI: v1alpha1.HyperfleetAPI{URL: fleetA},
			Broker:        v1alpha1.Broker{Type: v1alpha1.BrokerNATS, Topic: "events", URL: brokerA},
			Decision:      &v1alpha1.Decision{Profile: "generation-then-age"},
		},
	}
	for _, c := range change {
		c(&sc.Spec)
	}
	return sc
}

// apply applies a manifest as a user does.
func (h *host) apply(t *testing.T, object any) {
	t.Helper()
	text, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "object.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	h.kubectl(t, "apply", "--server-side", "-f", file)
}

func (h *host) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := h.bed.Kubectl(t.Context(), append([]string{"-n", h.namespace}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// get reads a SentinelConfig.
func (h *host) get(t *testing.T, name string) *v1alpha1.SentinelConfig {
	t.Helper()
	var sc v1alpha1.SentinelConfig
	if err := yaml.Unmarshal([]byte(h.kubectl(t, "get", "sentinelconfigs", name, "-o", "yaml")), &sc); err != nil {
		t.Fatal(err)
	}
	return &sc
}

// wantCondition waits until a condition has a status, and a reason or message that contains a text.
// It returns the object.
func (h *host) wantCondition(t *testing.T, name, condition string, status metav1.ConditionStatus, text string) (sc *v1alpha1.SentinelConfig) {
	t.Helper()
	eventually(t, func() error {
		sc = h.get(t, name)
		for _, c := range sc.Status.Conditions {
			if c.Type == condition && c.Status == status && strings.Contains(c.Reason+" "+c.Message, text) {
				return nil
			}
		}
		return fmt.Errorf("conditions are %+v, want %s %s with %q", sc.Status.Conditions, condition, status, text)
	})
	return sc
}

// wantAnnounced waits until clusters were announced to a broker.
func (h *host) wantAnnounced(t *testing.T, url string, ids ...string) {
	t.Helper()
	eventually(t, func() error {
		missing := map[string]bool{}
		for _, id := range ids {
			missing[id] = true
		}
		for _, e := range h.brokers.Events() {
			if e.URL == url {
				delete(missing, e.Subject)
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("no event at %s about %v", url, missing)
		}
		return nil
	})
}

// wantOnce checks that no event was published twice.
func (h *host) wantOnce(t *testing.T) {
	t.Helper()
	seen := map[string]bool{}
	for _, e := range h.brokers.Events() {
		if seen[e.ID] {
			t.Errorf("event %s about %s came twice", e.ID, e.Subject)
		}
		seen[e.ID] = true
	}
}

// wantEvent waits for a Kubernetes event about an object, as kubectl shows it.
func (h *host) wantEvent(t *testing.T, name, reason, text string) {
	t.Helper()
	eventually(t, func() error {
		out := h.kubectl(t, "get", "events", "--field-selector", "involvedObject.name="+name+",reason="+reason, "-o", "custom-columns=M:.message")
		if !strings.Contains(out, text) {
			return fmt.Errorf("no event %s with %q: %s", reason, text, out)
		}
		return nil
	})
}
