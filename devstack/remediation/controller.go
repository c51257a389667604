package remediation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/kube"
)

// Options configure the controller.
type Options struct {
	// Namespace is the namespace of requests and executions. An owner and its dependents are in the
	// same namespace.
	Namespace string

	// RequestedBy is the user name of the controller, the requester of the executions. If it is
	// empty, the API server sets it.
	RequestedBy string

	// Concurrency is the number of concurrent reconciles. Zero means 4.
	Concurrency int

	// Log receives errors. Nil disables logging.
	Log *slog.Logger
}

// NewManager creates a manager that runs the controller.
func NewManager(cfg *rest.Config, o Options) (manager.Manager, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Concurrency == 0 {
		o.Concurrency = 4
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	m, err := kube.NewManager(cfg, kube.Options{
		Scheme:     scheme,
		Namespaced: []schema.GroupVersionKind{GroupVersion.WithKind(Kind), v1alpha1.GroupVersion.WithKind(v1alpha1.Kind)},
		Cache:      cache.Options{DefaultNamespaces: map[string]cache.Config{o.Namespace: {}}},
		Log:        o.Log,
	})
	if err != nil {
		return nil, err
	}
	r := &reconciler{m.GetClient(), o}
	err = ctrl.NewControllerManagedBy(m).
		Named("remediation").
		For(&Request{}).
		Watches(&v1alpha1.KubernetesExecution{}, handler.EnqueueRequestsFromMapFunc(mapToParentRequest)).
		WithOptions(controller.Options{MaxConcurrentReconciles: o.Concurrency}).
		Complete(reconcile.AsReconciler(m.GetClient(), r))
	if err != nil {
		return nil, fmt.Errorf("make the controller of remediations: %w", err)
	}
	return m, nil
}

// mapToParentRequest maps an execution to the request that owns it.
func mapToParentRequest(_ context.Context, o client.Object) []reconcile.Request {
	ke, ok := o.(*v1alpha1.KubernetesExecution)
	if !ok || ke.Spec.RemediationRequestRef == nil {
		return nil
	}
	ref := ke.Spec.RemediationRequestRef
	name := types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
	if name.Namespace == "" {
		name.Namespace = ke.Namespace
	}
	return []reconcile.Request{{NamespacedName: name}}
}

type reconciler struct {
	client client.Client
	o      Options
}

// Reconcile moves a request one step forward: it creates the execution, follows it, and rolls it
// back or accepts it.
func (r *reconciler) Reconcile(ctx context.Context, rr *Request) (ctrl.Result, error) {
	woken := metav1.NowMicro()
	if rr.DeletionTimestamp != nil || rr.Status.OverallPhase == PhaseCompleted || rr.Status.OverallPhase == PhaseFailed {
		return ctrl.Result{}, nil
	}
	before := rr.DeepCopy()
	after, err := r.runCurrentStep(ctx, rr)
	if rr.Status.ExecutionPhase != before.Status.ExecutionPhase {
		rr.Status.ObservedAt = &woken
	}
	if !equality.Semantic.DeepEqual(rr.Status, before.Status) {
		err = errors.Join(err, r.client.Status().Patch(ctx, rr, client.MergeFrom(before)))
	}
	return ctrl.Result{RequeueAfter: after}, client.IgnoreNotFound(err)
}

func (r *reconciler) runCurrentStep(ctx context.Context, rr *Request) (after time.Duration, err error) {
	rr.Status.OverallPhase, rr.Status.Execution = PhaseExecuting, rr.Name+"-step-1"
	ke, err := r.getExecution(ctx, rr, rr.Status.Execution)
	if err != nil {
		return 0, err
	}
	if ke == nil {
		return 0, r.createExecution(ctx, rr, rr.Status.Execution, &v1alpha1.KubernetesExecutionSpec{
			Action: rr.Spec.Action, Parameters: rr.Spec.Parameters, PostConditions: rr.Spec.PostConditions,
		})
	}
	rr.Status.ExecutionPhase = ke.Status.Phase
	switch {
	case ke.Status.Phase == v1alpha1.PhaseCompleted:
		rr.Status.OverallPhase = PhaseCompleted
	case ke.Status.Phase == v1alpha1.PhaseFailed:
		rr.Status.OverallPhase, rr.Status.Message = PhaseFailed, ke.Status.Message
	case ke.Status.Phase != v1alpha1.PhaseRollbackReady:
		return r.enforceDeadline(ctx, rr, ke)
	case ke.Status.Outcome == v1alpha1.OutcomeFailed && rr.Spec.Rollback:
		return 0, r.advanceRollback(ctx, rr, ke)
	default:
		return 0, r.setSpecFlag(ctx, ke, "finalize", ke.Spec.Finalize)
	}
	return 0, nil
}

// enforceDeadline cancels an execution that exceeds the timeout.
func (r *reconciler) enforceDeadline(ctx context.Context, rr *Request, ke *v1alpha1.KubernetesExecution) (again time.Duration, err error) {
	if rr.Spec.Timeout == nil || ke.Spec.Cancel {
		return 0, nil
	}
	if left := time.Until(rr.CreationTimestamp.Add(rr.Spec.Timeout.Duration)); left > 0 {
		return left, nil
	}
	return 0, r.setSpecFlag(ctx, ke, "cancel", ke.Spec.Cancel)
}

// advanceRollback creates the rollback execution, finalizes it, and then finalizes the original execution.
func (r *reconciler) advanceRollback(ctx context.Context, rr *Request, ke *v1alpha1.KubernetesExecution) error {
	back := ke.Status.RollbackInformation
	if back == nil || !back.Available {
		return r.setSpecFlag(ctx, ke, "finalize", ke.Spec.Finalize)
	}
	rr.Status.Rollback = rr.Name + "-rollback-1"
	undo, err := r.getExecution(ctx, rr, rr.Status.Rollback)
	if err != nil {
		return err
	}
	if undo == nil {
		return r.createExecution(ctx, rr, rr.Status.Rollback, &v1alpha1.KubernetesExecutionSpec{
			Action: back.RollbackAction, Parameters: back.RollbackParameters,
			RollbackOf: &v1alpha1.ObjectReference{Name: ke.Name, UID: ke.UID},
		})
	}
	switch undo.Status.Phase {
	case v1alpha1.PhaseRollbackReady:
		return r.setSpecFlag(ctx, undo, "finalize", undo.Spec.Finalize)
	case v1alpha1.PhaseCompleted, v1alpha1.PhaseFailed:
		return r.setSpecFlag(ctx, ke, "finalize", ke.Spec.Finalize)
	case v1alpha1.PhaseNew, v1alpha1.PhaseValidating, v1alpha1.PhaseValidated, v1alpha1.PhaseWaitingApproval, v1alpha1.PhaseExecuting:
	}
	return nil
}

// createExecution creates an execution. If it already exists, the cache does not have it yet.
func (r *reconciler) createExecution(ctx context.Context, rr *Request, name string, spec *v1alpha1.KubernetesExecutionSpec) error {
	yes := true
	spec.RequestedBy = r.o.RequestedBy
	spec.RemediationRequestRef = &v1alpha1.ObjectReference{Namespace: rr.Namespace, Name: rr.Name, UID: rr.UID}
	ke := &v1alpha1.KubernetesExecution{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: rr.Namespace, Name: name,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: GroupVersion.String(), Kind: Kind, Name: rr.Name, UID: rr.UID, Controller: &yes, BlockOwnerDeletion: &yes,
			}},
		},
		Spec: *spec,
	}
	if err := r.client.Create(ctx, ke); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("ask for execution %q: %w", name, err)
	}
	return nil
}

// getExecution reads an execution of a request. Nil means that it is not in the cache yet; its arrival
// wakes the request.
func (r *reconciler) getExecution(ctx context.Context, rr *Request, name string) (*v1alpha1.KubernetesExecution, error) {
	var ke v1alpha1.KubernetesExecution
	err := r.client.Get(ctx, client.ObjectKey{Namespace: rr.Namespace, Name: name}, &ke)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // absent is no error here
	}
	if err != nil {
		return nil, fmt.Errorf("get execution %q: %w", name, err)
	}
	if !metav1.IsControlledBy(&ke, rr) {
		return nil, fmt.Errorf("execution %q is another's", name)
	}
	return &ke, nil
}

// setSpecFlag sets a spec field with which a parent controls an execution.
func (r *reconciler) setSpecFlag(ctx context.Context, ke *v1alpha1.KubernetesExecution, field string, alreadySet bool) error {
	if alreadySet {
		return nil
	}
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{%q:true}}`, field))
	if err := r.client.Patch(ctx, ke, patch); err != nil {
		return fmt.Errorf("%s execution %q: %w", field, ke.Name, err)
	}
	return nil
}
