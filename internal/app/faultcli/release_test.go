package faultcli_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault"
	"github.com/fleetloop/fleetloop/internal/nodefault/quarantine"
)

var gpuTaint = corev1.Taint{Key: "fleetloop.io/sick", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}

// newNode makes a node.
func newNode(t *testing.T, name string, spec corev1.NodeSpec) {
	t.Helper()
	if err := adminClient(t).Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}); err != nil {
		t.Fatal(err)
	}
}

func getNode(t *testing.T, name string) *corev1.Node {
	t.Helper()
	var n corev1.Node
	if err := adminClient(t).Get(t.Context(), client.ObjectKey{Name: name}, &n); err != nil {
		t.Fatal(err)
	}
	return &n
}

// quarantined takes a node out of service, as the controller does.
func quarantined(t *testing.T, name string) {
	t.Helper()
	fault := xidFault()
	q, st := quarantine.New(quarantine.Config{}, nil), &v1alpha1.NodeFaultStatus{}
	for range 5 {
		step, err := q.Step(quarantine.StepInput{
			Now: now.Add(-1), Node: getNode(t, name), Status: st, Faults: []v1alpha1.Fault{fault},
			Verdict: nodefault.Verdict{DesiredActions: v1alpha1.DesiredActions{Cordon: true, Taints: []corev1.Taint{gpuTaint}}, Opened: &fault, Matched: []v1alpha1.Fault{fault}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if step.Node != nil {
			if err := adminClient(t).Update(t.Context(), step.Node, client.FieldOwner(v1alpha1.FieldManager)); err != nil {
				t.Fatal(err)
			}
		}
		step.Settle(st)
		if step.Act {
			return
		}
	}
	t.Fatalf("node %s was not taken: %+v", name, st)
}

// TestRelease verifies that a release removes all changes of Fleetloop from a node and nothing
// else, and whether it is recorded.
func TestRelease(t *testing.T) {
	t.Parallel()
	theirs := corev1.Taint{Key: "team", Value: "ml", Effect: corev1.TaintEffectNoSchedule}
	for _, name := range []string{"rel-one", "rel-rearm", "rel-never"} {
		newNode(t, name, corev1.NodeSpec{Taints: []corev1.Taint{theirs}})
	}
	newNode(t, "rel-both", corev1.NodeSpec{Unschedulable: true})
	for _, name := range []string{"rel-one", "rel-rearm", "rel-both"} {
		quarantined(t, name)
	}
	if n := getNode(t, "rel-one"); !n.Spec.Unschedulable || n.Annotations[v1alpha1.AnnotationOwned] == "" {
		t.Fatalf("the node is not in quarantine: %+v", n)
	}

	wantRun(t, 2, "or --all", "faults", "release")
	wantRun(t, 2, "or --all", "faults", "release", "rel-one", "--all")
	wantRun(t, 0, "node rel-one: released\n", "faults", "release", "node/rel-one", "--reason=mended")
	got := getNode(t, "rel-one")
	if got.Spec.Unschedulable || got.Annotations[v1alpha1.AnnotationOwned] != "" || got.Labels[v1alpha1.LabelPhase] != "" {
		t.Errorf("something of ours is left: %+v", got)
	}
	if diff := cmp.Diff([]corev1.Taint{theirs}, withoutSystem(got.Spec.Taints)); diff != "" {
		t.Errorf("the taints: -want +got\n%s", diff)
	}
	if got.Annotations[v1alpha1.AnnotationOverridden] == "" {
		t.Error("the wish of a person is not remembered")
	}
	wantRun(t, 0, "node rel-rearm: released\n", "faults", "release", "rel-rearm", "--allow-requarantine")
	if text := getNode(t, "rel-rearm").Annotations[v1alpha1.AnnotationOverridden]; text != "" {
		t.Errorf("it is remembered although it was not to be: %s", text)
	}

	wantRun(t, 0, "node rel-both: released; it stays cordoned, because someone else cordoned it", "faults", "release", "rel-both")
	if !getNode(t, "rel-both").Spec.Unschedulable {
		t.Error("the cordon of somebody else was taken off")
	}
	before := getNode(t, "rel-never").ResourceVersion
	wantRun(t, 0, "node rel-never: no changes of the controller found", "faults", "release", "rel-never")
	if getNode(t, "rel-never").ResourceVersion != before {
		t.Error("a node with nothing of ours was written")
	}
	wantRun(t, 3, "kubectl get nodes", "faults", "release", "rel-none")
	wantRun(t, 4, "not found", "faults", "release", "rel-none", "rel-never")
}

// TestReleaseAll holds that nothing of ours stays on any node.
func TestReleaseAll(t *testing.T) { //nolint:paralleltest // it releases the nodes of the others, too
	newNode(t, "bye-one", corev1.NodeSpec{})
	newNode(t, "bye-two", corev1.NodeSpec{})
	quarantined(t, "bye-one")
	quarantined(t, "bye-two")
	r := wantRun(t, 0, "node bye-one: released", "faults", "release", "--all", "--reason=uninstalled")
	if !strings.Contains(r.out, "node bye-two: released") {
		t.Errorf("not all are released:\n%s", r.outputText())
	}
	for _, name := range []string{"bye-one", "bye-two"} {
		if n := getNode(t, name); n.Spec.Unschedulable || n.Annotations[v1alpha1.AnnotationOwned] != "" || n.Annotations[v1alpha1.AnnotationOverridden] != "" {
			t.Errorf("something is left on %s: %+v", name, n)
		}
	}
	wantRun(t, 0, "No node has changes of the controller.", "faults", "release", "--all")
}

// withoutSystem leaves out what the API server and its controllers add.
func withoutSystem(taints []corev1.Taint) []corev1.Taint {
	var own []corev1.Taint
	for _, t := range taints {
		if !strings.HasPrefix(t.Key, "node.kubernetes.io/") {
			own = append(own, t)
		}
	}
	return own
}
