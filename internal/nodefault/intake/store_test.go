package intake_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/kube"
	"github.com/fleetloop/fleetloop/internal/nodefault"
	"github.com/fleetloop/fleetloop/internal/nodefault/intake"
)

func TestMain(m *testing.M) {
	kube.RedirectLibraryLogs(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})))
	kubebedtest.Main(m, kubebed.Options{CRDs: []string{"../../../deploy/crds/fleetloop.io_nodefaults.yaml"}})
}

// newClient returns a client of the API server without a cache.
func newClient(t *testing.T) client.WithWatch {
	t.Helper()
	return newClientOf(t, kubebedtest.Bed(t))
}

func newClientOf(t *testing.T, bed *kubebed.Bed) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	c, err := client.NewWithWatch(bed.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func createNode(t *testing.T, c client.Client) string {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: strings.ToLower(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '-'
	}, t.Name())) + "-"}}
	if err := c.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		for _, o := range []client.Object{node, &v1alpha1.NodeFault{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}} {
			if err := client.IgnoreNotFound(c.Delete(ctx, o)); err != nil {
				t.Error(err)
			}
		}
	})
	return node.Name
}

func newFaultStore(t *testing.T, c client.Client) *intake.FaultStore {
	t.Helper()
	s, err := intake.NewFaultStore(intake.StoreConfig{}, intake.StoreDeps{Live: c, Write: c})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func detectedAt() time.Time { return time.Date(2025, 8, 26, 14, 42, 58, 315_000_000, time.UTC) }

func newFaultReport(node, entity string, change ...func(*v1alpha1.Fault)) nodefault.Report {
	f := v1alpha1.Fault{
		Source: "syslog-health-monitor", Check: "xid-check", Entity: entity, ComponentClass: "GPU", ErrorCodes: []string{"XID-79"},
		Fatal: true, Message: "GPU has fallen off the bus", RecommendedAction: v1alpha1.ActionRestartVM, DetectedAt: metav1.NewMicroTime(detectedAt()),
	}
	for _, do := range change {
		do(&f)
	}
	return nodefault.Report{Node: node, Fault: f}
}

func asHealthy(r nodefault.Report) nodefault.Report {
	r.Healthy = true
	return r
}

func asObserved(f *v1alpha1.Fault) { f.ObserveOnly = true }

func getNodeFault(t *testing.T, c client.Client, node string) *v1alpha1.NodeFault {
	t.Helper()
	nf := &v1alpha1.NodeFault{}
	if err := c.Get(t.Context(), types.NamespacedName{Name: node}, nf); err != nil {
		t.Fatal(err)
	}
	return nf
}

func wantFaults(t *testing.T, c client.Client, node string, want ...nodefault.Report) {
	t.Helper()
	var faults []v1alpha1.Fault
	for _, r := range want {
		faults = append(faults, r.Fault)
	}
	same := cmp.Comparer(func(a, b metav1.MicroTime) bool { return a.Equal(&b) })
	if diff := cmp.Diff(faults, getNodeFault(t, c, node).Spec.Faults, same); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}

func apply(t *testing.T, s *intake.FaultStore, reports ...nodefault.Report) {
	t.Helper()
	if err := s.Apply(t.Context(), reports); err != nil {
		t.Fatal(err)
	}
}

func TestFaultsComeAndGo(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	s, other := newFaultStore(t, c), newFaultStore(t, c)
	node := createNode(t, c)

	apply(t, s, asHealthy(newFaultReport(node, "")))
	if err := c.Get(t.Context(), types.NamespacedName{Name: node}, &v1alpha1.NodeFault{}); !apierrors.IsNotFound(err) {
		t.Fatalf("a node that was never ill has a NodeFault: %v", err)
	}
	apply(t, s, newFaultReport(node, "GPU/0"), newFaultReport(node, "GPU/3"))
	apply(t, other, newFaultReport(node, ""))
	wantFaults(t, c, node, newFaultReport(node, "GPU/0"), newFaultReport(node, "GPU/3"), newFaultReport(node, ""))

	worse := func(f *v1alpha1.Fault) { f.Message, f.ErrorCodes = "worse", []string{"XID-79", "XID-48"} }
	later := func(f *v1alpha1.Fault) { worse(f); f.DetectedAt = metav1.NewMicroTime(detectedAt().Add(time.Hour)) }
	apply(t, other, newFaultReport(node, "GPU/3", later))
	wantFaults(t, c, node, newFaultReport(node, "GPU/0"), newFaultReport(node, "GPU/3", worse), newFaultReport(node, ""))

	apply(t, other, asHealthy(newFaultReport(node, "GPU/0,GPU/7")))
	wantFaults(t, c, node, newFaultReport(node, "GPU/3", worse), newFaultReport(node, ""))
	elsewhere := func(f *v1alpha1.Fault) { f.Source = "another" }
	apply(t, s, newFaultReport(node, "", elsewhere))
	apply(t, s, asHealthy(newFaultReport(node, "")))
	wantFaults(t, c, node, newFaultReport(node, "", elsewhere))
}

func TestWhatStandsThereIsNotWrittenAgain(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	s := newFaultStore(t, c)
	node := createNode(t, c)
	apply(t, s, newFaultReport(node, "GPU/3"))
	version := getNodeFault(t, c, node).ResourceVersion
	again := func(f *v1alpha1.Fault) { f.DetectedAt = metav1.NewMicroTime(detectedAt().Add(time.Minute)) }
	for range 3 {
		apply(t, s, newFaultReport(node, "GPU/3", again), asHealthy(newFaultReport(node, "GPU/4")))
	}
	apply(t, s, newFaultReport(node, "GPU/5"), asHealthy(newFaultReport(node, "GPU/5")))
	if got := getNodeFault(t, c, node).ResourceVersion; got != version {
		t.Errorf("the object was written: its version went from %s to %s", version, got)
	}
}

func TestObservationsDoNotTakeTheirPlace(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	s := newFaultStore(t, c)
	node := createNode(t, c)
	apply(t, s, newFaultReport(node, "", asObserved))
	wantFaults(t, c, node, newFaultReport(node, "", asObserved))
	apply(t, s, newFaultReport(node, ""))
	wantFaults(t, c, node, newFaultReport(node, ""))
	apply(t, s, newFaultReport(node, "", asObserved), asHealthy(newFaultReport(node, "", asObserved)))
	wantFaults(t, c, node, newFaultReport(node, ""))
	apply(t, s, asHealthy(newFaultReport(node, "")))
	wantFaults(t, c, node)
}

func TestStoreRefusals(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	s := newFaultStore(t, c)
	node := createNode(t, c)
	long := func(f *v1alpha1.Fault) { f.Check = strings.Repeat("x", 129) }
	err := s.Apply(t.Context(), []nodefault.Report{
		newFaultReport("no-such-node", ""), newFaultReport(node, "GPU/1"), newFaultReport(node, "", long), asHealthy(newFaultReport("no-such-node", "")),
	})
	errs := intake.SplitReportErrors(err, 4)
	for i, want := range []error{intake.ErrUnknownNode, nil, intake.ErrInvalid, nil} {
		if !errors.Is(errs[i], want) {
			t.Errorf("report %d: got %v, want %v", i, errs[i], want)
		}
	}
	wantFaults(t, c, node, newFaultReport(node, "GPU/1"))

	var many []nodefault.Report
	for i := range 64 {
		many = append(many, newFaultReport(node, fmt.Sprintf("NIC/%02d", i)))
	}
	errs = intake.SplitReportErrors(s.Apply(t.Context(), many), len(many))
	if errs[62] != nil || !errors.Is(errs[63], intake.ErrFull) {
		t.Errorf("the 64th and 65th fault of a node: %v, %v, want nil and %v", errs[62], errs[63], intake.ErrFull)
	}
	apply(t, s, asHealthy(newFaultReport(node, "GPU/1")), many[63]) // removals come first
}

// TestPeopleEdit verifies that the source can end a fault that a person has edited.
func TestPeopleEdit(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	s := newFaultStore(t, c)
	node := createNode(t, c)
	apply(t, s, newFaultReport(node, "GPU/3"), newFaultReport(node, "GPU/4"))
	nf := getNodeFault(t, c, node)
	nf.Spec.Faults[0].Message = "seen by me"
	mine := func(f *v1alpha1.Fault) { f.Message = "written by me" }
	nf.Spec.Faults = append(nf.Spec.Faults, newFaultReport(node, "GPU/5", mine).Fault)
	if err := c.Update(t.Context(), nf, client.FieldOwner("kubectl-edit")); err != nil {
		t.Fatal(err)
	}
	apply(t, s, asHealthy(newFaultReport(node, "GPU/3")), newFaultReport(node, "GPU/5"))
	wantFaults(t, c, node, newFaultReport(node, "GPU/4"), newFaultReport(node, "GPU/5"))
	apply(t, s, asHealthy(newFaultReport(node, "GPU/5")))
	wantFaults(t, c, node, newFaultReport(node, "GPU/4"))
}

// TestStoreStaleNodeCache reports a fault of a node that is not in the cache yet.
func TestStoreStaleNodeCache(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	behind := interceptor.NewClient(c, interceptor.Funcs{Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, key.Name)
	}})
	s, err := intake.NewFaultStore(intake.StoreConfig{}, intake.StoreDeps{Live: c, Write: c, Nodes: behind})
	if err != nil {
		t.Fatal(err)
	}
	node := createNode(t, c)
	apply(t, s, newFaultReport(node, ""))
	wantFaults(t, c, node, newFaultReport(node, ""))
}

// TestNodeFaultDeletedMeanwhile deletes the NodeFault, or deletes and recreates it, between the
// read and the write.
func TestNodeFaultDeletedMeanwhile(t *testing.T) {
	t.Parallel()
	for _, again := range []bool{false, true} {
		c := newClient(t)
		node := createNode(t, c)
		apply(t, newFaultStore(t, c), newFaultReport(node, "GPU/3"))
		other := newFaultStore(t, c)
		var once sync.Once
		meddling := interceptor.NewClient(c, interceptor.Funcs{Apply: func(ctx context.Context, w client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			once.Do(func() {
				if err := c.Delete(ctx, &v1alpha1.NodeFault{ObjectMeta: metav1.ObjectMeta{Name: node}}); err != nil {
					t.Error(err)
				}
				if again {
					if err := other.Apply(ctx, []nodefault.Report{newFaultReport(node, "GPU/3"), newFaultReport(node, "GPU/4")}); err != nil {
						t.Error(err)
					}
				}
			})
			return w.Apply(ctx, o, opts...)
		}})
		apply(t, newFaultStore(t, meddling), asHealthy(newFaultReport(node, "GPU/3")))
		if again {
			wantFaults(t, c, node, newFaultReport(node, "GPU/4"))
		} else if err := c.Get(t.Context(), types.NamespacedName{Name: node}, &v1alpha1.NodeFault{}); !apierrors.IsNotFound(err) {
			t.Errorf("a healthy report made a NodeFault: %v", err)
		}
	}
}

// TestStoreReplicas reports from several sources to two stores at once, in order for each
// source.
func TestStoreReplicas(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	stores := []*intake.FaultStore{newFaultStore(t, c), newFaultStore(t, c)}
	node := createNode(t, c)
	const sources, rounds = 8, 5
	var working sync.WaitGroup
	for i := range sources {
		working.Go(func() {
			source := func(f *v1alpha1.Fault) { f.Source = fmt.Sprintf("source-%d", i) }
			for round := range rounds {
				s := stores[(i+round)%len(stores)]
				reports := []nodefault.Report{newFaultReport(node, fmt.Sprint(round), source)}
				if round > 0 {
					reports = append(reports, asHealthy(newFaultReport(node, fmt.Sprint(round-1), source)))
				}
				if err := s.Apply(t.Context(), reports); err != nil {
					t.Errorf("source %d, round %d: %v", i, round, err)
				}
			}
		})
	}
	working.Wait()
	got := map[string]bool{}
	for _, f := range getNodeFault(t, c, node).Spec.Faults {
		got[nodefault.KeyOf(f)] = true
	}
	want := map[string]bool{}
	for i := range sources {
		want[fmt.Sprintf("source-%d/xid-check/%d", i, rounds-1)] = true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}

func reportsOf(node string, checks ...string) []nodefault.Report {
	var out []nodefault.Report
	for _, check := range checks {
		out = append(out, newFaultReport(node, "", func(f *v1alpha1.Fault) { f.Check = check }))
	}
	return out
}

// A slowReader signals each request, and responds when the test allows it.
type slowReader struct {
	client.Client

	once          sync.Once
	asked, answer chan struct{}
}

func (s *slowReader) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	s.once.Do(func() { close(s.asked) })
	<-s.answer
	return s.Client.Get(ctx, key, o, opts...)
}
