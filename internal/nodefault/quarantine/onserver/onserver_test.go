// Package onserver tests package quarantine with a real API server, which maintains the
// managed fields, and with kubectl.
package onserver

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/nodefault/quarantine"
	"github.com/fleetloop/fleetloop/internal/nodefault/rules"
)

func TestMain(m *testing.M) { kubebedtest.Main(m, kubebed.Options{}) }

// A ward is one Node on the API server with its controller.
type ward struct {
	*testing.T
	nodes  client.Client
	plain  kubernetes.Interface
	bed    *kubebed.Bed
	rules  *rules.Set
	name   string
	patch  bool // whether the controller writes with a patch
	now    time.Time
	faults []v1alpha1.Fault
	status v1alpha1.NodeFaultStatus
}

func newWard(t *testing.T, patch bool) *ward {
	t.Helper()
	w := &ward{T: t, bed: kubebedtest.Bed(t), patch: patch, now: time.Now()}
	var err error
	if w.nodes, err = client.New(w.bed.Config(), client.Options{}); err != nil {
		t.Fatal(err)
	}
	if w.plain, err = kubernetes.NewForConfig(w.bed.Config()); err != nil {
		t.Fatal(err)
	}
	if w.rules, err = rules.Compile(rules.Config{{Name: "all", Match: "true", Taints: []string{"sick=gpu:NoSchedule"}}}); err != nil {
		t.Fatal(err)
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "gpu-"}}
	if err := w.nodes.Create(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	w.name = n.Name
	t.Cleanup(func() {
		if err := w.nodes.Delete(context.WithoutCancel(t.Context()), n); err != nil {
			t.Errorf("delete the node: %v", err)
		}
	})
	return w
}

func (w *ward) node() *corev1.Node {
	w.Helper()
	var n corev1.Node
	if err := w.nodes.Get(w.Context(), types.NamespacedName{Name: w.name}, &n); err != nil {
		w.Fatal(err)
	}
	return &n
}

// settle makes steps until nothing is left to do.
func (w *ward) settle() quarantine.Step {
	w.Helper()
	q := quarantine.New(quarantine.Config{}, nil)
	for range 20 {
		n := w.node()
		verdict, err := w.rules.Decide(n, w.faults, w.now)
		if err != nil {
			w.Fatal(err)
		}
		s, err := q.Step(quarantine.StepInput{Now: w.now, Node: n, Status: &w.status, Verdict: verdict, Faults: w.faults})
		if err != nil {
			w.Fatal(err)
		}
		if s.Node != nil {
			w.write(n, s.Node)
		}
		s.Settle(&w.status)
		if s.Node == nil && s.After != quarantine.AtOnce {
			return s
		}
	}
	w.Fatal("it does not come to rest")
	return quarantine.Step{}
}

func (w *ward) write(before, after *corev1.Node) {
	w.Helper()
	owner := client.FieldOwner(v1alpha1.FieldManager)
	var err error
	if w.patch {
		err = w.nodes.Patch(w.Context(), after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), owner)
	} else {
		err = w.nodes.Update(w.Context(), after, owner)
	}
	if err != nil {
		w.Fatalf("write the node: %v", err)
	}
}

func (w *ward) kubectl(args ...string) {
	w.Helper()
	if _, err := w.bed.Kubectl(w.Context(), args...); err != nil {
		w.Fatal(err)
	}
}

// falls adds a fault and quarantines the node.
func (w *ward) falls() {
	w.Helper()
	w.faults = []v1alpha1.Fault{{Source: "agent", Check: "xid-check", DetectedAt: metav1.NewMicroTime(w.now)}}
	if s := w.settle(); !s.Act {
		w.Fatalf("the node is not taken: %+v", s)
	}
}

// recovers keeps the node healthy for long enough.
func (w *ward) recovers() {
	w.Helper()
	w.faults = nil
	w.settle()
	w.now = w.now.Add(quarantine.DefaultHealthyFor)
	w.settle()
}

// applies declares the cordon with server-side apply.
func (w *ward) applies() {
	w.Helper()
	text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": w.name}, "spec": map[string]any{"unschedulable": true}})
	if err != nil {
		w.Fatal(err)
	}
	force := true
	_, err = w.plain.CoreV1().Nodes().Patch(w.Context(), w.name, types.ApplyPatchType, text, metav1.PatchOptions{FieldManager: "gitops", Force: &force})
	if err != nil {
		w.Fatal(err)
	}
}

// crowd writes the node with more managers than the API server records.
func (w *ward) crowd() {
	w.Helper()
	for i := range 14 {
		text := fmt.Sprintf(`{"metadata":{"labels":{"crowd-%d":"x"}}}`, i)
		_, err := w.plain.CoreV1().Nodes().Patch(w.Context(), w.name, types.MergePatchType, []byte(text), metav1.PatchOptions{FieldManager: fmt.Sprint("manager-", i)})
		if err != nil {
			w.Fatal(err)
		}
	}
	for _, e := range w.node().ManagedFields {
		if e.Manager == v1alpha1.FieldManager {
			w.Fatalf("the API server still remembers us: %v", managers(w.node()))
		}
	}
}

// untrack clears the managed fields, which the API server does not record from then on.
func (w *ward) untrack() {
	w.Helper()
	w.kubectl("patch", "node", w.name, "--type=merge", "-p", `{"metadata":{"managedFields":[{}]}}`)
	if left := managers(w.node()); len(left) > 0 {
		w.Fatalf("the API server still keeps %v", left)
	}
}

// on describes the changes on the node.
func (w *ward) on() string {
	w.Helper()
	n := w.node()
	var words []string
	if n.Spec.Unschedulable {
		words = append(words, "cordoned")
	}
	slices.SortFunc(n.Spec.Taints, func(a, b corev1.Taint) int { return strings.Compare(a.Key, b.Key) })
	for _, t := range n.Spec.Taints {
		if !strings.HasPrefix(t.Key, "node.kubernetes.io/") {
			words = append(words, t.ToString())
		}
	}
	for _, key := range []string{v1alpha1.AnnotationOwned, v1alpha1.AnnotationReleased, v1alpha1.AnnotationOverridden} {
		if _, there := n.Annotations[key]; there {
			words = append(words, strings.TrimPrefix(key, "fleetloop.io/node-fault-"))
		}
	}
	return strings.Join(words, " ")
}

func (w *ward) told() string {
	var actions []string
	for _, r := range w.status.History {
		actions = append(actions, r.Action)
	}
	return strings.Join(actions, " ")
}

func TestOnServer(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason   string
		do       func(w *ward)
		on, told string
	}{
		"Ours": {
			reason: "our cordon is ours, and is taken off",
			do:     func(w *ward) { w.falls(); w.recovers() },
			on:     "released", told: "cordon uncordon",
		},
		"CordonedBefore": {
			reason: "kubectl's is not",
			do:     func(w *ward) { w.kubectl("cordon", w.name); w.falls(); w.recovers() },
			on:     "cordoned released",
		},
		"CordonedAfter": {
			reason: "to cordon a node again that we have cordoned changes nothing, and leaves no trace",
			do:     func(w *ward) { w.falls(); w.kubectl("cordon", w.name); w.recovers() },
			on:     "released", told: "cordon uncordon",
		},
		"Uncordoned": {
			reason: "a person undoes us",
			do:     func(w *ward) { w.falls(); w.kubectl("uncordon", w.name); w.settle() },
			on:     "overridden", told: "cordon override-detected",
		},
		"UncordonedAndCordoned": {
			reason: "the cordon is kubectl's now, though nobody looked in between",
			do: func(w *ward) {
				w.falls()
				w.kubectl("uncordon", w.name)
				w.kubectl("cordon", w.name)
				w.recovers()
			},
			on: "cordoned released", told: "cordon",
		},
		"UntrackedUncordonedAndCordoned": {
			reason: "also on a node whose managed fields nobody kept before",
			do: func(w *ward) {
				w.untrack()
				w.falls()
				w.kubectl("uncordon", w.name)
				w.kubectl("cordon", w.name)
				w.recovers()
			},
			on: "cordoned released", told: "cordon",
		},
		"ClearedUncordonedAndCordoned": {
			reason: "and on one whose managed fields somebody has cleared since",
			do: func(w *ward) {
				w.falls()
				w.untrack()
				w.settle()
				w.kubectl("uncordon", w.name)
				w.kubectl("cordon", w.name)
				w.recovers()
			},
			on: "cordoned released", told: "cordon",
		},
		"Untracked": {
			reason: "where nobody else has a hand in it, ours is taken off",
			do:     func(w *ward) { w.untrack(); w.falls(); w.recovers() },
			on:     "released", told: "cordon uncordon",
		},
		"UntrackedCordonedBefore": {
			reason: "and theirs is not",
			do:     func(w *ward) { w.untrack(); w.kubectl("cordon", w.name); w.falls(); w.recovers() },
			on:     "cordoned released",
		},
		"Applied": {
			reason: "who applies the cordon holds it with us",
			do:     func(w *ward) { w.falls(); w.applies(); w.recovers() },
			on:     "cordoned released", told: "cordon",
		},
		"MarkRemoved": {
			reason: "the managed fields show that the cordon is ours",
			do: func(w *ward) {
				w.falls()
				w.kubectl("annotate", "node", w.name, v1alpha1.AnnotationOwned+"-")
				w.recovers()
			},
			on: "released", told: "cordon uncordon",
		},
		"StatusAndMarkRemoved": {
			reason: "even if they alone do",
			do: func(w *ward) {
				w.falls()
				w.kubectl("annotate", "node", w.name, v1alpha1.AnnotationOwned+"-")
				w.status = v1alpha1.NodeFaultStatus{}
				w.recovers()
			},
			// The list of taints has one manager, so the taint belongs to no one.
			on: "sick=gpu:NoSchedule released", told: "cordon uncordon",
		},
		"Crowded": {
			reason: "where the managed fields have forgotten who it was, the mark counts",
			do:     func(w *ward) { w.falls(); w.crowd(); w.recovers() },
			on:     "released", told: "cordon uncordon",
		},
		"ManagersCleared": {
			reason: "and where somebody has cleared them",
			do: func(w *ward) {
				w.falls()
				w.untrack()
				w.recovers()
			},
			on: "released", told: "cordon uncordon",
		},
		"Untainted": {
			reason: "a taint that kubectl takes off is not put back",
			do: func(w *ward) {
				w.falls()
				w.kubectl("taint", "node", w.name, "sick-")
				w.settle()
			},
			on: "cordoned owned", told: "cordon",
		},
		"Edited": {
			reason: "what others change beside ours stays",
			do: func(w *ward) {
				w.kubectl("taint", "node", w.name, "theirs=x:NoExecute")
				w.falls()
				w.kubectl("taint", "node", w.name, "late=y:NoSchedule")
				w.recovers()
			},
			on: "late=y:NoSchedule theirs=x:NoExecute released", told: "cordon uncordon",
		},
		"ReleasedByHand": {
			reason: "a release that is applied by another manager is ours nevertheless",
			do: func(w *ward) {
				w.falls()
				n, took := quarantine.Release(w.node(), w.now, "by hand", true)
				if !took {
					w.Fatal("nothing was released")
				}
				if err := w.nodes.Update(w.Context(), n); err != nil {
					w.Fatal(err)
				}
				w.settle()
			},
			on: "released overridden", told: "cordon uncordon",
		},
	}
	for name, tc := range cases {
		for how, patch := range map[string]bool{"Patch": true, "Update": false} {
			t.Run(name+how, func(t *testing.T) {
				t.Parallel()
				w := newWard(t, patch)
				tc.do(w)
				if diff := cmp.Diff([]string{tc.on, tc.told}, []string{w.on(), w.told()}); diff != "" {
					t.Errorf("%s: -want +got\n%s\nmanaged fields: %v", tc.reason, diff, managers(w.node()))
				}
			})
		}
	}
}

func managers(n *corev1.Node) []string {
	var all []string
	for _, e := range n.ManagedFields {
		all = append(all, fmt.Sprintf("%s %s %s", e.Manager, e.Operation, e.FieldsV1.GetRawString()))
	}
	return all
}
