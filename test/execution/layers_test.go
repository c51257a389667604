package execution

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/devstack/remediation"
	"github.com/fleetloop/fleetloop/test/execution/fleettest"
)

// parent runs the controller of remediations as a user who may ask.
func parent(f *fleettest.Fleet) {
	f.Helper()
	const user = "remediation"
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: user},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{remediation.GroupVersion.Group}, Resources: []string{"*"}, Verbs: []string{"*"}},
			{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{v1alpha1.Resource}, Verbs: []string{"create", "get", "list", "watch", "patch", v1alpha1.VerbExecute}},
		},
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: role.ObjectMeta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	for _, o := range []client.Object{role, binding} {
		if err := f.Client.Create(f.Context(), o); err != nil {
			f.Fatal(err)
		}
	}
	m, err := remediation.NewManager(f.UserConfig(user), remediation.Options{Namespace: f.Namespace, RequestedBy: user, Log: f.Logger()})
	if err != nil {
		f.Fatal(err)
	}
	ctx, cancel := context.WithCancel(f.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	f.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			f.Errorf("the controller of remediations ended: %v", err)
		}
	})
}

// remedy asks for a Deployment to be scaled from 3 to some replicas.
func remedy(f *fleettest.Fleet, name string, replicas int) *remediation.Request {
	f.Helper()
	rr := &remediation.Request{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: name},
		Spec: remediation.Spec{
			Action:     "scale_deployment",
			Parameters: &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"namespace":%q,"deployment":%q,"replicas":%d}`, f.Cheap, name, replicas)},
		},
	}
	if err := f.Client.Create(f.Context(), rr); err != nil {
		f.Fatal(err)
	}
	return rr
}

// TestLayers goes from a RemediationRequest to a Job and back, by watches alone.
func TestLayers(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleettest.Options{})
	parent(f)
	var woken []time.Duration
	for n := range 10 {
		name := fmt.Sprintf("r%d", n)
		f.CreateDeploymentAndAwaitObserved(f.Cheap, name, 3)
		remedy(f, name, 5)
		rr := ends(f, name, remediation.PhaseCompleted)
		ke := f.GetExecution(rr.Status.Execution)
		last := ke.Status.PhaseTransitions[len(ke.Status.PhaseTransitions)-1]
		if last.Phase != v1alpha1.PhaseCompleted {
			t.Fatalf("%s is %s", ke.Name, last.Phase)
		}
		woken = append(woken, rr.Status.ObservedAt.Sub(last.At.Time))
		if !metav1.IsControlledBy(ke, rr) {
			t.Errorf("the owners of %s are %+v", ke.Name, ke.OwnerReferences)
		}
		f.WantReplicas(f.Cheap, name, 5)
	}
	slices.Sort(woken)
	t.Logf("the parent saw the end after %s, at most after %s", woken[len(woken)/2], woken[len(woken)-1])
	if woken[len(woken)-1] > time.Second {
		t.Errorf("the parent saw the end after %v, want within a second", woken)
	}

	f.CreateDeploymentAndAwaitObserved(f.Cheap, "toomany", 3)
	remedy(f, "toomany", 500)
	if rr := ends(f, "toomany", remediation.PhaseFailed); rr.Status.Message == "" {
		t.Error("the request does not say why it failed")
	}
}

// Whoever deletes a request deletes what it led to.
func TestLayersAreDeletedTogether(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleettest.Options{Image: fleettest.Gated})
	parent(f)
	f.CreateDeploymentAndAwaitObserved(f.Cheap, "web", 3)
	rr := remedy(f, "web", 5)
	runs(f, "web-step-1")
	if err := f.Client.Delete(t.Context(), rr, client.PropagationPolicy("Background")); err != nil {
		t.Fatal(err)
	}
	f.Until(func() error {
		var list v1alpha1.KubernetesExecutionList
		if err := f.Client.List(t.Context(), &list, client.InNamespace(f.Namespace)); err != nil {
			return err
		}
		if n := len(list.Items) + len(f.ListExecutionJobs("web-step-1")) + len(f.ListExecutionPods("web-step-1")); n > 0 {
			return errors.New("something is left of it")
		}
		return nil
	})
}

// ends waits until a request has ended so.
func ends(f *fleettest.Fleet, name string, phase remediation.Phase) *remediation.Request {
	f.Helper()
	var rr remediation.Request
	kubebedtest.Eventually(f, func(ctx context.Context) error {
		if err := f.Client.Get(ctx, client.ObjectKey{Namespace: f.Namespace, Name: name}, &rr); err != nil {
			return err
		}
		if rr.Status.OverallPhase != phase {
			return fmt.Errorf("the request is %+v, want %s", rr.Status, phase)
		}
		return nil
	})
	return &rr
}
