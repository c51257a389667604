package remediation

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/janitor/v1alpha1"
	faults "github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
)

// TestRealServer verifies with a real API server that an object is created once, that its
// existence can be checked without creating it, and that it is valid.
func TestRealServer(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(kubebedtest.Bed(t).Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	r := New(Config{}, c)
	now := time.Now()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "real-1", UID: "u"}, Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: "b"}}}
	st := &faults.NodeFaultStatus{NodeUID: "u", Session: "abcdef01", DesiredActions: &faults.DesiredActions{Remedies: []faults.Remedy{faults.RemedyReboot}}}
	step := func(node *corev1.Node, st *faults.NodeFaultStatus) {
		t.Helper()
		if _, err := r.Step(t.Context(), node, st, now); err != nil {
			t.Fatal(err)
		}
	}
	step(node, st)
	written := st.DeepCopy()
	step(node, st)
	var made v1alpha1.RebootNode
	if err := c.Get(t.Context(), client.ObjectKey{Name: "real-1-abcdef01-1"}, &made); err != nil || !made.Spec.Force || made.Labels[LabelSession] != "abcdef01" {
		t.Fatalf("%+v, %v", made, err)
	}
	for name, lost := range map[string]func(*faults.NodeFaultStatus) *corev1.Node{
		"StillWanted": func(*faults.NodeFaultStatus) *corev1.Node { return node },
		"NotWanted":   func(st *faults.NodeFaultStatus) *corev1.Node { st.DesiredActions = nil; return node },
		"NodeGone":    func(*faults.NodeFaultStatus) *corev1.Node { return nil },
	} {
		again := written.DeepCopy() // the response was lost
		step(lost(again), again)
		if len(again.History) != 1 || again.History[0].ID != st.History[0].ID || again.Remediation.State != faults.RemedyRunning {
			t.Errorf("%s: %+v", name, again)
		}
	}
	if err := c.Delete(t.Context(), &made); err != nil {
		t.Fatal(err)
	}
	unwanted := written.DeepCopy()
	unwanted.DesiredActions = nil
	step(node, unwanted)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(&made), &made); !apierrors.IsNotFound(err) || unwanted.Remediation.State != faults.RemedyFailed {
		t.Errorf("to look whether it is there has made it: %v, %+v", err, unwanted.Remediation)
	}
	step(node, st)
	if st.Remediation.State != faults.RemedyExhausted {
		t.Errorf("somebody took it back: %+v", st.Remediation)
	}
}
