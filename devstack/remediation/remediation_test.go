package remediation_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/devstack/remediation"
	"github.com/fleetloop/fleetloop/internal/kube"
)

func TestMain(m *testing.M) {
	kube.RedirectLibraryLogs(slog.New(slog.DiscardHandler)) // before the clients of the tests begin to log
	kubebedtest.Main(m, kubebed.Options{CRDs: []string{"../../deploy/crds", "crd.yaml"}, Controllers: []string{"garbage-collector-controller"}})
}

// A fixture is a namespace with a controller. The test plays the executor.
type fixture struct {
	*testing.T
	client    client.WithWatch
	namespace string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	cfg := kubebedtest.Bed(t).Config()
	scheme := runtime.NewScheme()
	if err := errors.Join(remediation.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t, c, kubebedtest.Namespace(t)}
	m, err := remediation.NewManager(cfg, remediation.Options{Namespace: f.namespace, RequestedBy: "parent", Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the controller ended: %v", err)
		}
	})
	return f
}

func (f *fixture) create(spec remediation.Spec) *remediation.Request {
	f.Helper()
	spec.Action = "scale_deployment"
	spec.Parameters = &runtime.RawExtension{Raw: []byte(`{"deployment":"web","namespace":"shop","replicas":5}`)}
	rr := &remediation.Request{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "r1"}, Spec: spec}
	if err := f.client.Create(f.Context(), rr); err != nil {
		f.Fatal(err)
	}
	return rr
}

// execution waits until an execution is there and as wanted.
func (f *fixture) execution(name string, check func(*v1alpha1.KubernetesExecution) error) *v1alpha1.KubernetesExecution {
	f.Helper()
	var ke v1alpha1.KubernetesExecution
	kubebedtest.Eventually(f, func(ctx context.Context) error {
		if err := f.client.Get(ctx, client.ObjectKey{Namespace: f.namespace, Name: name}, &ke); err != nil {
			return err
		}
		if check == nil {
			return nil
		}
		return check(&ke)
	})
	return &ke
}

// becomes writes an execution's status, as the executor does.
func (f *fixture) becomes(ke *v1alpha1.KubernetesExecution, phase v1alpha1.Phase, outcome v1alpha1.Outcome) {
	f.Helper()
	before := ke.DeepCopy()
	at := metav1.NowMicro()
	ke.Status.Phase, ke.Status.Outcome = phase, outcome
	ke.Status.PhaseTransitions = append(ke.Status.PhaseTransitions, v1alpha1.PhaseTransition{Phase: phase, At: at})
	if phase == v1alpha1.PhaseRollbackReady {
		ke.Status.RollbackInformation = &v1alpha1.RollbackInformation{
			Available: true, RollbackAction: "scale_deployment",
			RollbackParameters: &runtime.RawExtension{Raw: []byte(`{"deployment":"web","namespace":"shop","replicas":3}`)},
		}
	}
	if phase == v1alpha1.PhaseFailed {
		ke.Status.Message = "it went wrong"
	}
	if err := f.client.Status().Patch(f.Context(), ke, client.MergeFrom(before)); err != nil {
		f.Fatal(err)
	}
}

// request waits until the request is as wanted.
func (f *fixture) request(phase remediation.Phase, seen v1alpha1.Phase) *remediation.Request {
	f.Helper()
	var rr remediation.Request
	kubebedtest.Eventually(f, func(ctx context.Context) error {
		if err := f.client.Get(ctx, client.ObjectKey{Namespace: f.namespace, Name: "r1"}, &rr); err != nil {
			return err
		}
		if rr.Status.OverallPhase != phase || rr.Status.ExecutionPhase != seen {
			return fmt.Errorf("the request is %+v, want %s with an execution that is %s", rr.Status, phase, seen)
		}
		return nil
	})
	return &rr
}

func finalizes(ke *v1alpha1.KubernetesExecution) error {
	if !ke.Spec.Finalize {
		return fmt.Errorf("execution %q is not finalized", ke.Name)
	}
	return nil
}

// A request goes with its execution, which it owns, to the end.
func TestRequestIsCompletedWithItsExecution(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	rr := f.create(remediation.Spec{})
	ke := f.execution("r1-step-1", nil)
	if !metav1.IsControlledBy(ke, rr) || ke.Spec.RemediationRequestRef == nil || ke.Spec.RemediationRequestRef.Name != "r1" || ke.Spec.RequestedBy != "parent" {
		t.Errorf("the execution is %+v of %+v, want one that the request owns and that names it", ke.Spec, ke.OwnerReferences)
	}
	f.request(remediation.PhaseExecuting, "")
	for _, phase := range []v1alpha1.Phase{v1alpha1.PhaseValidating, v1alpha1.PhaseExecuting} {
		f.becomes(ke, phase, "")
		f.request(remediation.PhaseExecuting, phase)
	}
	f.becomes(ke, v1alpha1.PhaseRollbackReady, v1alpha1.OutcomeSucceeded)
	ke = f.execution(ke.Name, finalizes)
	// The controller has no timer for a request without a timeout: only its watch
	// of executions gets it here.
	f.request(remediation.PhaseExecuting, v1alpha1.PhaseRollbackReady)
	f.becomes(ke, v1alpha1.PhaseCompleted, v1alpha1.OutcomeSucceeded)
	f.request(remediation.PhaseCompleted, v1alpha1.PhaseCompleted)
}

func TestRequestFailsWithItsExecution(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.create(remediation.Spec{})
	f.becomes(f.execution("r1-step-1", nil), v1alpha1.PhaseFailed, v1alpha1.OutcomeFailed)
	if rr := f.request(remediation.PhaseFailed, v1alpha1.PhaseFailed); rr.Status.Message != "it went wrong" {
		t.Errorf("the request says %q, want what its execution says", rr.Status.Message)
	}
}

// A parent decides whether something is taken back.
func TestRequestTakesBack(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.create(remediation.Spec{Rollback: true})
	ke := f.execution("r1-step-1", nil)
	f.becomes(ke, v1alpha1.PhaseRollbackReady, v1alpha1.OutcomeFailed)
	undo := f.execution("r1-rollback-1", nil)
	if undo.Spec.RollbackOf == nil || undo.Spec.RollbackOf.UID != ke.UID {
		t.Errorf("the way back is of %+v, want of %s", undo.Spec.RollbackOf, ke.UID)
	}
	f.becomes(undo, v1alpha1.PhaseRollbackReady, v1alpha1.OutcomeSucceeded)
	f.becomes(f.execution(undo.Name, finalizes), v1alpha1.PhaseCompleted, v1alpha1.OutcomeSucceeded)
	f.becomes(f.execution(ke.Name, finalizes), v1alpha1.PhaseFailed, v1alpha1.OutcomeFailed)
	f.request(remediation.PhaseFailed, v1alpha1.PhaseFailed)
}

func TestRequestCancelsWhatTakesTooLong(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.create(remediation.Spec{Timeout: &metav1.Duration{Duration: time.Second}})
	f.becomes(f.execution("r1-step-1", nil), v1alpha1.PhaseExecuting, "")
	ke := f.execution("r1-step-1", func(ke *v1alpha1.KubernetesExecution) error {
		if !ke.Spec.Cancel {
			return errors.New("the execution is not cancelled")
		}
		return nil
	})
	f.becomes(ke, v1alpha1.PhaseFailed, v1alpha1.OutcomeFailed)
	f.request(remediation.PhaseFailed, v1alpha1.PhaseFailed)
}

func TestExecutionsGoWithTheirRequest(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	rr := f.create(remediation.Spec{})
	f.execution("r1-step-1", nil)
	if err := f.client.Delete(f.Context(), rr); err != nil {
		t.Fatal(err)
	}
	kubebedtest.Eventually(f, func(ctx context.Context) error {
		var list v1alpha1.KubernetesExecutionList
		if err := f.client.List(ctx, &list, client.InNamespace(f.namespace)); err != nil {
			return err
		}
		if len(list.Items) > 0 {
			return errors.New("the execution is still there")
		}
		return nil
	})
}
