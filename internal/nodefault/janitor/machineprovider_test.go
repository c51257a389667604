package janitor

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
)

// machines is the CRD with the parts of Cluster API that are used.
const machines = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: machines.cluster.x-k8s.io}
spec:
  group: cluster.x-k8s.io
  names: {kind: Machine, listKind: MachineList, plural: machines, singular: machine}
  scope: Namespaced
  versions:
  - name: v1beta1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

type cluster struct {
	*testing.T
	p        Provider
	machines dynamic.ResourceInterface
	ns       string
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	if err := kubebedtest.Bed(t).InstallCRDText(t.Context(), []byte(machines)); err != nil {
		t.Fatal(err)
	}
	deps := newProviderDeps(t)
	p, err := NewProvider(ProviderConfig{Kind: ProviderMachine}, deps)
	if err != nil {
		t.Fatal(err)
	}
	ns := kubebedtest.Namespace(t)
	resource := schema.GroupVersionResource{Group: "cluster.x-k8s.io", Version: "v1beta1", Resource: "machines"}
	return &cluster{t, p, deps.Dynamic.Resource(resource).Namespace(ns), ns}
}

// add creates a Machine.
func (c *cluster) add(name, node string, finalizers ...string) *unstructured.Unstructured {
	c.Helper()
	m := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Machine", "metadata": map[string]any{"name": name}}}
	m.SetFinalizers(finalizers)
	made, err := c.machines.Create(c.Context(), m, metav1.CreateOptions{})
	if err != nil {
		c.Fatal(err)
	}
	if node == "" {
		return made
	}
	made.Object["status"] = map[string]any{"phase": "Running", "nodeRef": map[string]any{"name": node}}
	if made, err = c.machines.UpdateStatus(c.Context(), made, metav1.UpdateOptions{}); err != nil {
		c.Fatal(err)
	}
	return made
}

// of returns a request for the node of a Machine.
func (c *cluster) of(a Action, machine string) Request {
	r := newRequest(a, "n")
	r.Node.Annotations = map[string]string{"cluster.x-k8s.io/machine": machine, "cluster.x-k8s.io/cluster-namespace": c.ns}
	return r
}

// TestMachineReboot verifies that a reboot annotates the Machine once. Cluster API
// removes its annotation when it is done, and a second one would cause another reboot.
func TestMachineReboot(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.add("m", "n")
	r := c.of(ActionReboot, "m")
	reference, err := c.p.Start(t.Context(), r)
	wantAnswer(t, reference, err, "accepted", c.ns+"/m/")
	m, err := c.machines.Get(t.Context(), "m", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	annotations := m.GetAnnotations()
	if _, asked := annotations["cluster.x-k8s.io/remediate-machine"]; !asked {
		t.Errorf("the Machine has %v", annotations)
	}
	delete(annotations, "cluster.x-k8s.io/remediate-machine")
	m.SetAnnotations(annotations)
	if _, err := c.machines.Update(t.Context(), m, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	again, err := c.p.Start(t.Context(), r)
	wantAnswer(t, again, err, "accepted", reference)
	m, err = c.machines.Get(t.Context(), "m", metav1.GetOptions{})
	if _, asked := m.GetAnnotations()["cluster.x-k8s.io/remediate-machine"]; err != nil || asked {
		t.Errorf("it was asked for twice: %v", err)
	}
	r.Key = "another"
	again, err = c.p.Start(t.Context(), r)
	wantAnswer(t, again, err, "accepted", reference)
	m, err = c.machines.Get(t.Context(), "m", metav1.GetOptions{})
	if _, asked := m.GetAnnotations()["cluster.x-k8s.io/remediate-machine"]; err != nil || !asked {
		t.Errorf("another request was taken for the same: %v", err)
	}
	c.wantState(r, reference, StateRunning)
	if err := c.machines.Delete(t.Context(), "m", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.wantState(r, reference, StateFailed)
}

// TestMachineIsWithdrawn verifies that a withdrawn reboot is not left on the Machine, where it would
// happen later, and that the request of another key stays.
func TestMachineIsWithdrawn(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.add("m", "n")
	withdrawer, ok := c.p.(Withdrawer)
	if !ok {
		t.Fatal("it cannot withdraw")
	}
	r := c.of(ActionReboot, "m")
	reference, err := c.p.Start(t.Context(), r)
	wantAnswer(t, reference, err, "accepted", c.ns+"/m/")
	another := r
	another.Key = "another"
	unmanaged := newRequest(ActionReboot, "n")
	for _, tc := range []struct {
		reason string
		r      Request
		asked  bool
	}{
		{"another request may still be executed", another, true},
		{"a node without a Machine has no request", unmanaged, true},
		{"a Machine that is gone has no request", c.of(ActionReboot, "gone"), true},
		{"it must not happen later", r, false},
		{"it is withdrawn already", r, false},
	} {
		if err := withdrawer.Withdraw(t.Context(), tc.r); err != nil {
			t.Errorf("%s: %v", tc.reason, err)
		}
		m, err := c.machines.Get(t.Context(), "m", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, asked := m.GetAnnotations()["cluster.x-k8s.io/remediate-machine"]; asked != tc.asked {
			t.Errorf("%s: the Machine has %v", tc.reason, m.GetAnnotations())
		}
	}
}

// TestMachineTerminate verifies that a termination deletes the Machine and is done when
// it is gone, after its finalizers and regardless of a new Machine of that name.
func TestMachineTerminate(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.add("m", "n", "test.fleetloop.io/keep")
	r := c.of(ActionTerminate, "m")
	reference, err := c.p.Start(t.Context(), r)
	wantAnswer(t, reference, err, "accepted", c.ns+"/m/")
	again, err := c.p.Start(t.Context(), r)
	wantAnswer(t, again, err, "accepted", reference)
	c.wantState(r, reference, StateRunning)
	if _, err := c.machines.Patch(t.Context(), "m", "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	kubebedtest.Eventually(t, func(ctx context.Context) error {
		if _, err := c.machines.Get(ctx, "m", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return errors.Join(errors.New("it is still there"), err)
		}
		return nil
	})
	r.Node = nil
	c.wantState(r, reference, StateDone)
	c.add("m", "")
	c.wantState(r, reference, StateDone)
	c.wantState(r, "nonsense", StateFailed)
}

func (c *cluster) wantState(r Request, reference string, state State) {
	c.Helper()
	if p, err := c.p.CheckProgress(c.Context(), r, reference); err != nil || p.State != state {
		c.Errorf("%+v, %v; want %s", p, err, state)
	}
}

// TestMachineNotFound verifies that the Machine of another node is not changed, and that
// a missing one does not count as deleted.
func TestMachineNotFound(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.add("other", "m2")
	bare := newRequest(ActionTerminate, "n")
	cases := map[string]struct {
		reason     string
		request    Request
		want, text string
	}{
		"NoAnnotations": {"Cluster API has not made this node", bare, "permanent", "not managed by Cluster API"},
		"NotThere":      {"it may be in another cluster", c.of(ActionTerminate, "gone"), "error", "not found"},
		"AnothersNode":  {"an annotation can be wrong", c.of(ActionTerminate, "other"), "permanent", `belongs to node "m2"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reference, err := c.p.Start(t.Context(), tc.request)
			wantAnswer(t, reference, err, tc.want, tc.text)
			tc.request.Action = ActionReboot
			reference, err = c.p.Start(t.Context(), tc.request)
			wantAnswer(t, reference, err, tc.want, tc.text)
		})
	}
	t.Cleanup(func() { // when all requests are made
		m, err := c.machines.Get(context.WithoutCancel(t.Context()), "other", metav1.GetOptions{})
		if err != nil || m.GetDeletionTimestamp() != nil {
			t.Errorf("the other Machine is gone: %v", err)
		}
	})
}
