package operator_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/kube/kubebed"
	"github.com/fleetloop/fleetloop/internal/kube/kubebed/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/kube/roles"
	"github.com/fleetloop/fleetloop/internal/sentinel"
	"github.com/fleetloop/fleetloop/internal/sentinel/operator"
	"github.com/fleetloop/fleetloop/internal/sentinel/operator/operatortest"
	"github.com/fleetloop/fleetloop/internal/sentinel/sentinelconfig"
	"github.com/fleetloop/fleetloop/internal/telemetry"
	"github.com/fleetloop/fleetloop/internal/telemetry/logtest"
)

func TestMain(m *testing.M) {
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
	brokerA = "nats://user:canary-a@broker-a"
	brokerB = "nats://user:canary-b@broker-b"
)

// A host is a namespace of the bed with an operator in it, whose sentinels
// have fakes around them.
type host struct {
	bed       *kubebed.Bed
	namespace string
	client    kubernetes.Interface
	account   *rest.Config
	fleet     *operatortest.Fleet
	brokers   *operatortest.Brokers
}

// newHost makes a namespace and an account with the rights of a sentinel that
// uses the given Secrets.
func newHost(t *testing.T, secrets ...string) *host {
	t.Helper()
	h := &host{bed: kubebedtest.Bed(t), namespace: kubebedtest.Namespace(t), fleet: operatortest.NewFleet("a", "b", "c"), brokers: operatortest.NewBrokers()}
	var err error
	if h.client, err = kubernetes.NewForConfig(h.bed.Config()); err != nil {
		t.Fatal(err)
	}
	if h.account, err = h.bed.ServiceAccount(t.Context(), h.namespace, roles.SentinelAccount); err != nil {
		t.Fatal(err)
	}
	for _, role := range (roles.Sentinel{Namespace: h.namespace, Secrets: secrets, Sharding: true}).Roles() {
		if _, err := h.client.RbacV1().Roles(h.namespace).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		binding := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role.Name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: roles.SentinelAccount, Namespace: h.namespace}},
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
	log     *logtest.Buffer
	metrics *prometheus.Registry
	cancel  context.CancelFunc
	done    chan error
}

// start runs an operator; no name is all of the namespace.
func (h *host) start(t *testing.T, name, identity string, change ...func(*operator.Deps)) *run {
	t.Helper()
	r := &run{log: &logtest.Buffer{}, metrics: prometheus.NewRegistry(), done: make(chan error, 1)}
	log, err := telemetry.NewLogger(r.log, telemetry.LogConfig{Level: "info"})
	if err != nil {
		t.Fatal(err)
	}
	deps := operator.Deps{Host: h.account, OpenAPI: h.fleet.Open, OpenBroker: h.brokers.Open, Log: log, Registerer: r.metrics}
	deps.Complete = func(s *sentinelconfig.Settings) { s.Sentinel.LogEvents = sentinel.LogEventsDebug }
	for _, c := range change {
		c(&deps)
	}
	r.Operator, err = operator.New(operator.Config{Namespace: h.namespace, Name: name, Identity: identity}, deps)
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

// spec is a SentinelConfig on the first fleet and broker.
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

// wantCondition waits until a condition has a status, and a reason or message
// that holds a text; it gives the object.
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

// wantOnce checks that no event came twice.
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

// TestLifeOfAnObject creates, changes, breaks, mends and deletes an object, with no
// more rights than the role gives.
func TestLifeOfAnObject(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	r := h.start(t, "one", "us")
	eventually(t, func() error {
		if err := r.Ready(); err == nil || !strings.Contains(err.Error(), "there is no such SentinelConfig") {
			return fmt.Errorf("ready says %v, want that there is no object", err)
		}
		return nil
	})
	h.apply(t, spec("other"))
	h.apply(t, spec("one"))
	h.wantAnnounced(t, brokerA, "a", "b", "c")
	eventually(t, r.Ready)
	first := h.wantCondition(t, "one", v1alpha1.ConditionReady, metav1.ConditionTrue, "generation 1")
	h.wantEvent(t, "one", "ConfigLoaded", "generation 1 is in force")
	eventually(t, func() error {
		s := h.get(t, "one").Status
		if s.ObservedGeneration != 1 || s.ResourcesWatched != 3 || s.EventsPublished != 3 || s.LastRoundTime == nil || len(s.Conditions) != 4 {
			return fmt.Errorf("status is %+v", s)
		}
		return nil
	})
	if n := len(h.brokers.Opened()); n != 1 {
		t.Errorf("%d brokers opened, want 1: the other object is not ours", n)
	}
	for _, column := range []string{"READY", "True", "clusters"} {
		if out := h.kubectl(t, "get", "sentinelconfigs", "one"); !strings.Contains(strings.ToUpper(out), strings.ToUpper(column)) {
			t.Errorf("kubectl shows no %s:\n%s", column, out)
		}
	}

	h.apply(t, spec("one", func(s *v1alpha1.SentinelConfigSpec) {
		s.ShardSelector = &v1alpha1.ShardSelector{MatchLabels: map[string]string{"region": "eu"}}
		s.Broker.URL = brokerB
	}))
	h.fleet.Add("d region=eu")
	h.wantAnnounced(t, brokerB, "d")
	second := h.wantCondition(t, "one", v1alpha1.ConditionReady, metav1.ConditionTrue, "generation 2")
	for i, c := range second.Status.Conditions {
		if before := first.Status.Conditions[i]; c.Type == v1alpha1.ConditionReady && !c.LastTransitionTime.Equal(&before.LastTransitionTime) {
			t.Errorf("%s changed at %s and at %s, though it has been true all the time", c.Type, before.LastTransitionTime, c.LastTransitionTime)
		}
	}
	h.wantEvent(t, "one", "ConfigChanged", "generation 2 is in force")

	h.apply(t, spec("one", func(s *v1alpha1.SentinelConfigSpec) {
		s.Decision = &v1alpha1.Decision{Profile: "expression", Result: "resource.generation +"}
	}))
	broken := h.wantCondition(t, "one", v1alpha1.ConditionConfigValid, metav1.ConditionFalse, "spec.decision")
	if broken.Status.ObservedGeneration != 2 {
		t.Errorf("observed generation is %d, want that in force", broken.Status.ObservedGeneration)
	}
	h.wantCondition(t, "one", v1alpha1.ConditionReady, metav1.ConditionTrue, "generation 2")
	h.wantEvent(t, "one", "ConfigInvalid", "spec.decision")
	h.fleet.Add("e region=eu")
	h.wantAnnounced(t, brokerB, "e")

	h.wantOnce(t)

	h.apply(t, spec("one"))
	h.wantCondition(t, "one", v1alpha1.ConditionConfigValid, metav1.ConditionTrue, "generation 4")
	h.kubectl(t, "delete", "sentinelconfigs", "one")
	eventually(t, func() error {
		if h.brokers.Running(brokerA) != 0 {
			return errors.New("its broker is still connected")
		}
		return nil
	})
	lists := h.fleet.Lists()
	h.fleet.Patch()
	if r.Ready() == nil {
		t.Error("it is ready without an object")
	}
	h.apply(t, spec("one", func(s *v1alpha1.SentinelConfigSpec) { s.PollInterval = "1h" }))
	h.wantCondition(t, "one", v1alpha1.ConditionReady, metav1.ConditionTrue, "generation 1")
	if n := h.fleet.Lists() - lists; n > 1 {
		t.Errorf("%d lists since it was deleted, want that of the new one", n)
	}
	if out := h.kubectl(t, "get", "sentinelconfigs,events", "-o", "yaml", "--show-managed-fields=false"); strings.Count(out, "canary") != strings.Count(h.kubectl(t, "get", "sentinelconfigs", "-o", "jsonpath={.items[*].spec}"), "canary") {
		t.Error("a password stands outside of the spec")
	}
}

// TestSecrets reads what an object names in Secrets, and follows it.
func TestSecrets(t *testing.T) {
	t.Parallel()
	h := newHost(t, "creds")
	r := h.start(t, "one", "us")
	h.apply(t, spec("one", func(s *v1alpha1.SentinelConfigSpec) {
		s.Broker.URL = ""
		s.Broker.CredentialsSecretRef = &v1alpha1.SecretRef{Name: "creds"}
	}))
	h.wantCondition(t, "one", v1alpha1.ConditionConfigValid, metav1.ConditionFalse, "spec.broker.credentialsSecretRef")
	h.wantCondition(t, "one", v1alpha1.ConditionReady, metav1.ConditionFalse, "SecretMissing")
	h.wantEvent(t, "one", "ConfigNotLoaded", "creds")
	if err := r.Ready(); err == nil || !strings.Contains(err.Error(), "creds") {
		t.Errorf("ready says %v, want that the Secret is missing", err)
	}
	h.kubectl(t, "create", "secret", "generic", "creds", "--from-literal=url="+brokerA)
	h.wantAnnounced(t, brokerA, "a", "b", "c")
	h.wantCondition(t, "one", v1alpha1.ConditionReady, metav1.ConditionTrue, "")

	h.kubectl(t, "patch", "secret", "creds", "-p", `{"stringData":{"url":"`+brokerB+`"}}`)
	h.wantEvent(t, "one", "ConfigChanged", "generation 1")
	h.fleet.Add("d")
	h.wantAnnounced(t, brokerB, "d")
	if n := h.brokers.Running(brokerA); n != 0 {
		t.Errorf("%d clients with the old credentials, want none", n)
	}

	h.kubectl(t, "delete", "secret", "creds")
	h.wantCondition(t, "one", v1alpha1.ConditionConfigValid, metav1.ConditionFalse, "creds")
	h.fleet.Add("e")
	h.wantAnnounced(t, brokerB, "e")
	h.wantCondition(t, "one", v1alpha1.ConditionReady, metav1.ConditionTrue, "")
	h.wantOnce(t)
}

// TestAllApart runs good and bad objects in one process.
func TestAllApart(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	const panicking, away = "http://panics", "nats://away"
	h.fleet.SetPanic(panicking, true)
	h.brokers.SetAway(away, true)
	h.apply(t, spec("good"))
	r := h.start(t, "", "us")
	h.wantAnnounced(t, brokerA, "a", "b", "c")
	h.apply(t, spec("panics", func(s *v1alpha1.SentinelConfigSpec) { s.HyperfleetAPI.URL = panicking }))
	h.apply(t, spec("away", func(s *v1alpha1.SentinelConfigSpec) { s.Broker.URL = away }))
	h.apply(t, spec("invalid", func(s *v1alpha1.SentinelConfigSpec) {
		s.Decision = &v1alpha1.Decision{Profile: "expression", Result: "resource.generation +"}
	}))
	h.apply(t, spec("late", func(s *v1alpha1.SentinelConfigSpec) { s.Broker.URL = brokerB }))
	h.wantAnnounced(t, brokerB, "a", "b", "c")
	h.wantCondition(t, "panics", v1alpha1.ConditionReady, metav1.ConditionFalse, "panic")
	h.wantEvent(t, "panics", "SentinelFailed", "panic")
	h.wantCondition(t, "away", v1alpha1.ConditionBrokerReachable, metav1.ConditionFalse, "it is away")
	h.wantCondition(t, "away", v1alpha1.ConditionAPIReachable, metav1.ConditionTrue, "")
	h.wantEvent(t, "away", "BrokerUnreachable", "it is away")
	h.wantCondition(t, "invalid", v1alpha1.ConditionReady, metav1.ConditionFalse, "spec.decision")
	for _, name := range []string{"good", "late"} {
		h.wantCondition(t, name, v1alpha1.ConditionReady, metav1.ConditionTrue, "")
	}
	if err := errors.Join(r.Ready(), r.Live()); err != nil {
		t.Errorf("the others make the process unfit: %v", err)
	}
	h.fleet.Patch()
	eventually(t, func() error {
		counts := map[string]int{}
		for _, e := range h.brokers.Events() {
			counts[e.URL]++
		}
		if counts[brokerA] != 6 || counts[brokerB] != 6 {
			return fmt.Errorf("events by broker are %v, want 6 at each", counts)
		}
		return nil
	})
	var watches []string
	for name := range r.Decisions() {
		watches = append(watches, name)
	}
	if text := strings.Join(watches, ","); !strings.Contains(text, "good: clusters") || !strings.Contains(text, "late: clusters") {
		t.Errorf("decisions are of %q", text)
	}
	h.fleet.SetPanic(panicking, false)
	h.wantCondition(t, "panics", v1alpha1.ConditionReady, metav1.ConditionTrue, "")
	h.kubectl(t, "delete", "sentinelconfigs", "late")
	eventually(t, func() error {
		if h.brokers.Running(brokerB) != 0 {
			return errors.New("what was deleted still runs")
		}
		return nil
	})
	families, err := r.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	configs := map[string]bool{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "config" {
					configs[l.GetValue()] = true
				}
			}
		}
	}
	if !configs["good"] || configs["late"] {
		t.Errorf("metrics are of %v, want those that run and no other", configs)
	}
}

// TestNothingLostUnderLoad changes the configuration again and again while the
// fleet changes: each generation that was the last of its cluster is announced, and
// no event comes twice.
func TestNothingLostUnderLoad(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for i := range 40 {
		h.fleet.Add(fmt.Sprint("c-", i))
	}
	h.start(t, "one", "us")
	data := func(s *v1alpha1.SentinelConfigSpec) {
		s.MessageData = &apiextensionsv1.JSON{Raw: []byte(`{"generation":"cel:resource.generation"}`)}
	}
	h.apply(t, spec("one", data))
	h.wantAnnounced(t, brokerA, "a", "c-39")
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(3 * time.Millisecond)
		defer ticker.Stop()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-ticker.C:
				h.fleet.Patch(fmt.Sprint("c-", i%40))
			}
		}
	}()
	for i := range 8 {
		url := []string{brokerB, brokerA}[i%2]
		h.apply(t, spec("one", data, func(s *v1alpha1.SentinelConfigSpec) {
			s.Broker.URL = url
			s.PollInterval = v1alpha1.Duration(fmt.Sprintf("%dms", 20+i))
		}))
		h.wantCondition(t, "one", v1alpha1.ConditionReady, metav1.ConditionTrue, fmt.Sprintf("generation %d", 2+i))
	}
	close(stop)
	<-stopped
	eventually(t, func() error {
		last := map[string]bool{}
		for _, e := range h.brokers.Events() {
			last[e.Subject+" "+string(e.Data)] = true
		}
		for id, g := range h.fleet.Generations() {
			if !last[fmt.Sprintf(`%s {"generation":%d}`, id, g)] {
				return fmt.Errorf("generation %d of %s was not announced", g, id)
			}
		}
		return nil
	})
	h.wantOnce(t)
}

// TestWithoutItsAPIServer takes the API server away: what runs goes on and is
// ready, and what was changed meanwhile takes effect. It stands alone, because the
// others share the server.
func TestWithoutItsAPIServer(t *testing.T) { //nolint:paralleltest // see above
	h := newHost(t)
	r := h.start(t, "one", "us")
	h.apply(t, spec("one"))
	h.wantAnnounced(t, brokerA, "a", "b", "c")
	h.wantCondition(t, "one", v1alpha1.ConditionReady, metav1.ConditionTrue, "")
	h.bed.StopAPIServer()
	back := sync.OnceFunc(func() {
		if err := h.bed.StartAPIServer(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(back)
	eventually(t, func() error {
		if !strings.Contains(r.log.String(), "connection refused") {
			return errors.New("the operator has not noticed")
		}
		return nil
	})
	h.fleet.Add("d")
	h.wantAnnounced(t, brokerA, "d")
	if err := errors.Join(r.Ready(), r.Live()); err != nil {
		t.Errorf("unfit without an API server: %v", err)
	}
	back()
	h.apply(t, spec("one", func(s *v1alpha1.SentinelConfigSpec) { s.Broker.URL = brokerB }))
	h.wantCondition(t, "one", v1alpha1.ConditionReady, metav1.ConditionTrue, "generation 2")
	h.fleet.Add("e")
	h.wantAnnounced(t, brokerB, "e")
	h.wantOnce(t)
	eventually(t, func() error {
		if s := h.get(t, "one").Status; s.EventsPublished != 5 {
			return fmt.Errorf("%d events by the status, want 5", s.EventsPublished)
		}
		return nil
	})
}
