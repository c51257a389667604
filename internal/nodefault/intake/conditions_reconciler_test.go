package intake

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault"
)

// A fakeCluster holds one node and its faults in memory.
type fakeCluster struct {
	client.Reader

	node   *corev1.Node
	faults []v1alpha1.Fault
	writes int
	err    error
}

func (w *fakeCluster) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	switch o := o.(type) {
	case *corev1.Node:
		if w.node == nil {
			return apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, key.Name)
		}
		*o = *w.node.DeepCopy()
	case *v1alpha1.NodeFault:
		if w.faults == nil {
			return apierrors.NewNotFound(schema.GroupResource{Resource: "nodefaults"}, key.Name)
		}
		o.Name, o.Spec.Faults = key.Name, w.faults
	}
	return nil
}

func (w *fakeCluster) Apply(_ context.Context, reports []nodefault.Report) error {
	w.writes++
	if w.err != nil {
		return w.err
	}
	for _, r := range reports {
		kept := []v1alpha1.Fault{}
		for _, f := range w.faults {
			if nodefault.KeyOf(f) != nodefault.KeyOf(r.Fault) {
				kept = append(kept, f)
			}
		}
		if w.faults = kept; !r.Healthy {
			w.faults = append(w.faults, r.Fault)
		}
	}
	return nil
}

func (w *fakeCluster) checks() string {
	var out []string
	for _, f := range w.faults {
		out = append(out, f.Check)
	}
	return strings.Join(out, " ")
}

func noon() time.Time { return time.Date(2025, 10, 21, 12, 0, 0, 0, time.UTC) }

func newConditionReconciler(t *testing.T, w *fakeCluster, cfg ConditionConfig, now *time.Time) *conditionReconciler {
	t.Helper()
	set, err := NewConditionSet(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &conditionReconciler{set: set, reader: w, store: w, log: slog.New(slog.DiscardHandler), now: func() time.Time { return *now }, short: map[string]Shortages{}}
}

func reconcileNode(t *testing.T, r *conditionReconciler) time.Duration {
	t.Helper()
	res, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "n1"}})
	if err != nil {
		t.Fatal(err)
	}
	return res.RequeueAfter
}

func nodeWithKubeletStatus(status corev1.ConditionStatus, at time.Time) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", CreationTimestamp: metav1.NewTime(noon().Add(-time.Hour))},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{
			Type: "KubeletUnhealthy", Status: status, Reason: "KubeletUnhealthy", Message: "some", LastTransitionTime: metav1.NewTime(at), LastHeartbeatTime: metav1.NewTime(at),
		}}},
	}
}

func TestReconcilerWritesChanges(t *testing.T) {
	now := noon()
	w := &fakeCluster{node: nodeWithKubeletStatus("True", noon())}
	r := newConditionReconciler(t, w, ConditionConfig{Presets: []string{"npd"}}, &now)
	want := func(reason, checks string, writes int, after time.Duration) {
		t.Helper()
		if got := reconcileNode(t, r); got != after || w.checks() != checks || w.writes != writes {
			t.Errorf("%s: faults %q after %d writes, again after %s; want %q, %d, %s", reason, w.checks(), w.writes, got, checks, writes, after)
		}
	}
	want("not long enough", "", 0, 5*time.Minute)
	now = now.Add(5 * time.Minute)
	want("a fault", "KubeletUnhealthy", 1, 0)
	want("as it was", "KubeletUnhealthy", 1, 0)
	w.node.Status.Conditions[0].Message = "seen 3 minutes ago"
	want("another message", "KubeletUnhealthy", 1, 0)
	w.node.Status.Conditions[0].Reason = "Another"
	want("another code", "KubeletUnhealthy", 2, 0)
	w.node.Status.Conditions[0].Status = "Unknown"
	want("neither good nor bad", "KubeletUnhealthy", 2, 0)
	w.node.Status.Conditions[0].Status = "False"
	want("well again", "", 3, 0)
	want("as it was", "", 3, 0)
}

func TestReconcilerEndsOrphans(t *testing.T) {
	fault := func(source, check string, age time.Duration) v1alpha1.Fault {
		return v1alpha1.Fault{Source: source, Check: check, DetectedAt: metav1.NewMicroTime(noon().Add(-age))}
	}
	cases := map[string]struct {
		reason string
		fault  v1alpha1.Fault
		stays  bool
	}{
		"NotConfigured":      {"the condition was taken from the configuration", fault(SourceConditions, "Retired", time.Minute), false},
		"ResourceRetired":    {"and so may be a resource", fault(SourceResources, "a.b/c", time.Minute), false},
		"PluginAway":         {"nothing is known of the resource", fault(SourceResources, "nvidia.com/gpu", time.Minute), true},
		"OfAnotherNode":      {"it was the node before, which had the name", fault(SourceResources, "nvidia.com/gpu", 2*time.Hour), false},
		"NeitherGoodNorBad":  {"an Unknown proves nothing", fault(SourceConditions, "KubeletUnhealthy", time.Minute), true},
		"UnknownOfTheBefore": {"but the node before is no more", fault(SourceConditions, "KubeletUnhealthy", 2*time.Hour), false},
		"OfAnotherSource":    {"it is not ours", fault("monitor", "Retired", 2*time.Hour), true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			now := noon()
			w := &fakeCluster{node: nodeWithKubeletStatus("Unknown", noon()), faults: []v1alpha1.Fault{tc.fault}}
			reconcileNode(t, newConditionReconciler(t, w, ConditionConfig{Presets: []string{"npd", "nvsentinel"}, Resources: []NodeResource{{Resource: "nvidia.com/gpu"}}}, &now))
			if (len(w.faults) == 1) != tc.stays {
				t.Errorf("%s: stays %v, want %v", tc.reason, len(w.faults) == 1, tc.stays)
			}
		})
	}
}

func TestReconcilerRefusedReport(t *testing.T) {
	now := noon()
	w := &fakeCluster{node: nodeWithKubeletStatus("True", noon().Add(-time.Hour))}
	r := newConditionReconciler(t, w, ConditionConfig{Presets: []string{"npd"}}, &now)
	w.err = ErrUnavailable
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "n1"}}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("while the API server is away: %v, want that it is tried again", err)
	}
	w.err = ErrFull
	if after := reconcileNode(t, r); after != refusedRetryDelay {
		t.Errorf("with no room: again after %s, want %s", after, refusedRetryDelay)
	}
	w.node = nil
	if after := reconcileNode(t, r); after != 0 || len(r.short) != 0 {
		t.Errorf("without the node: again after %s with %v in memory, want nothing", after, r.short)
	}
}

func TestReconcilerRemembersShortages(t *testing.T) {
	const gpu = "nvidia.com/gpu"
	now := noon()
	w := &fakeCluster{node: nodeWithKubeletStatus("False", noon())}
	w.node.Status.Capacity = corev1.ResourceList{gpu: resource.MustParse("8")}
	r := newConditionReconciler(t, w, ConditionConfig{Resources: []NodeResource{{Resource: gpu, For: time.Minute}}}, &now)
	if after := reconcileNode(t, r); after != time.Minute || w.writes != 0 {
		t.Errorf("at first: %d writes, again after %s, want none and 1m", w.writes, after)
	}
	now = now.Add(time.Minute)
	reconcileNode(t, r)
	if w.checks() != gpu || !w.faults[0].DetectedAt.Time.Equal(noon()) {
		t.Errorf("faults %+v, want one since the beginning", w.faults)
	}
	w.node.Status.Allocatable = corev1.ResourceList{gpu: resource.MustParse("4")}
	if reconcileNode(t, r); w.faults[0].Message != "4 of 8 nvidia.com/gpu allocatable" {
		t.Errorf("the message is %q", w.faults[0].Message)
	}
	w.node.Status.Allocatable = w.node.Status.Capacity
	if reconcileNode(t, r); w.checks() != "" || len(r.short) != 0 {
		t.Errorf("faults %q, in memory %v, want nothing", w.checks(), r.short)
	}
}

func TestRelevantChange(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(*corev1.Node)
		want   bool
	}{
		"Heartbeat": {"there is one every few minutes", func(n *corev1.Node) { n.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(noon().Add(time.Hour)) }, false},
		"Labels":    {"they are not looked at", func(n *corev1.Node) { n.Labels = map[string]string{"a": "b"} }, false},
		"Status":    {"it is looked at", func(n *corev1.Node) { n.Status.Conditions[0].Status = "False" }, true},
		"Transition": {"it began anew", func(n *corev1.Node) {
			n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(noon().Add(time.Hour))
		}, true},
		"Gone":        {"it is well", func(n *corev1.Node) { n.Status.Conditions = nil }, true},
		"Allocatable": {"less than before", func(n *corev1.Node) { n.Status.Allocatable = corev1.ResourceList{"a.b/c": resource.MustParse("1")} }, true},
		"AnotherLife": {"another node of the name", func(n *corev1.Node) { n.UID = "2" }, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			before := nodeWithKubeletStatus("True", noon())
			after := before.DeepCopy()
			tc.change(after)
			if got := uidConditionsOrResourcesChanged().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != tc.want {
				t.Errorf("%s: got %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}

func FuzzParseCodes(f *testing.F) {
	f.Add("ErrorCode:119,79 PCI:0002:00:00 Recommended Action=COMPONENT_RESET;ErrorCode:\xff Recommended Action=X;")
	f.Fuzz(func(t *testing.T, message string) {
		codes, action := parseCodesAndAction(message)
		if len(codes) > 16 || action == "" || len(action) > 64 {
			t.Fatalf("%d codes, action %q", len(codes), action)
		}
		for _, c := range codes {
			if len(c) > 64 {
				t.Fatalf("code %q", c)
			}
		}
	})
}
