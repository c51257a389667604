package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/processnode"
	"github.com/fleetloop/fleetloop/devstack/proof/history"
	"github.com/fleetloop/fleetloop/internal/execution/guard"
	"github.com/fleetloop/fleetloop/internal/execution/roles"
	"github.com/fleetloop/fleetloop/internal/kube"
	"github.com/fleetloop/fleetloop/internal/kube/executions"
)

const (
	executionReplicas = 2

	executorNamespace = guard.DefaultNamespace
	targetNamespace   = "shop"
	requesterName     = "alice"
	approverName      = "bob"
	runnerImage       = "localhost/fleetloop/action-runner:" // and the name of the release

	replicasBefore, replicasAfter = 3, 5
)

// A hostClients holds the clients of the people and of an administrator of the host cluster.
type hostClients struct{ admin, requester, approver client.Client }

// startExecutionControllers lets people use executions, runs a node for the Jobs, and starts the controllers.
func (t *topology) startExecutionControllers(ctx context.Context) (err error) {
	kube.RedirectLibraryLogs(slog.New(slog.DiscardHandler))
	if err := t.setUpUsersAndAwaitAdmission(ctx); err != nil {
		return err
	}
	images := map[string][]string{}
	for _, r := range []release{t.first, t.latest} {
		images[runnerImage+r.name] = []string{filepath.Join(r.bin, "action-runner")}
	}
	node, err := processnode.New(t.kube.Config(), processnode.Options{Images: images})
	if err != nil {
		return err
	}
	t.simulated.Go(func() { _ = node.Run(ctx) }) // ends only with ctx
	account := "system:serviceaccount:" + executorNamespace + ":" + roles.ControllerAccount
	kubeconfig, err := t.kube.WriteUserKubeconfig(
		account,
		"system:serviceaccounts",
		"system:serviceaccounts:"+executorNamespace,
		"system:authenticated",
	)
	if err != nil {
		return err
	}
	return t.startReplicas(ctx, "execution-controller", executionReplicas, func(p *process, _ string) {
		// The image is a program of the node, so there is nothing to pull.
		p.args = []string{
			"--kubeconfig=" + kubeconfig,
			"--namespace=" + executorNamespace,
			"--runner-image=" + runnerImage + releaseName,
			"--runner-pull-policy=Never",
		}
		p.env["DATABASE_URL"] = t.database.clientURL()
		if t.upgrade {
			p.env["ADMISSION_POLICY_PROPAGATION_DELAY"] = enforceDelay
		}
		maps.Copy(p.env, t.sink.env())
	})
}

// setUpUsersAndAwaitAdmission lets one person request and another one approve, in a namespace of production.
func (t *topology) setUpUsersAndAwaitAdmission(ctx context.Context) (err error) {
	for user, c := range map[string]*client.Client{"root": &t.people.admin, requesterName: &t.people.requester, approverName: &t.people.approver} {
		var groups []string
		if user == "root" {
			groups = []string{"system:masters"}
		}
		if *c, err = t.newHostClient(user, groups...); err != nil {
			return err
		}
	}
	bind := map[string][]string{approverName: {v1alpha1.ApproverRole}}
	for _, r := range roles.RequesterClusterRolesUpToRisk() {
		bind[requesterName] = append(bind[requesterName], r.Name)
	}
	for user, names := range bind {
		for _, name := range names {
			err := t.people.admin.Create(ctx, &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: user + "-" + name, Namespace: executorNamespace},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
				Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
			})
			if err != nil {
				return err
			}
		}
	}
	// The admission policies are in force shortly after their creation.
	return poll(ctx, startBound, func(ctx context.Context) error {
		if err := t.requestExecution(ctx, "guarded", client.DryRunAll); err != nil {
			return err
		}
		if err := t.forgeApproval(ctx, "guarded", client.DryRunAll); !apierrors.IsForbidden(err) {
			return fmt.Errorf("an invalid approval is not rejected: %w", err)
		}
		return nil
	})
}

func (t *topology) newHostClient(user string, groups ...string) (client.Client, error) {
	cfg, err := t.kube.User(user, groups...)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	return client.New(cfg, client.Options{Scheme: scheme})
}

func mergeOf(format string, values ...any) client.Patch {
	return client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, format, values...))
}

func newScaleExecution(name string) *v1alpha1.KubernetesExecution {
	return &v1alpha1.KubernetesExecution{
		ObjectMeta: metav1.ObjectMeta{Namespace: executorNamespace, Name: name},
		Spec: v1alpha1.KubernetesExecutionSpec{
			Action: "scale_deployment",
			Parameters: &runtime.RawExtension{
				Raw: fmt.Appendf(nil, `{"namespace":%q,"deployment":%q,"replicas":%d}`, targetNamespace, name, replicasAfter),
			},
		},
	}
}

func (t *topology) requestExecution(ctx context.Context, name string, options ...client.CreateOption) error {
	return t.people.requester.Create(ctx, newScaleExecution(name), options...)
}

// forgeApproval requests an execution that has an approval already.
func (t *topology) forgeApproval(ctx context.Context, name string, options ...client.CreateOption) error {
	forged := newScaleExecution(name)
	forged.Spec.Approvals = []v1alpha1.Approval{{Approver: approverName, Decision: v1alpha1.Approve, PlanHash: "none"}}
	return t.people.requester.Create(ctx, forged, options...)
}

// createTargetDeployment creates a Deployment without Pods: no controller of Deployments runs.
func (t *topology) createTargetDeployment(ctx context.Context, name string) error {
	labels, replicas := map[string]string{"app": name}, int32(replicasBefore)
	return t.people.admin.Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: targetNamespace, Name: name, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "localhost/web:1"}}},
			},
		},
	})
}

// approvePlansUntilEnded approves each plan of an execution, and waits for the end. A plan that waits while the admission
// policies change needs another approval. It returns the last plan whose approval the API server
// acknowledged; nil means none.
func (t *topology) approvePlansUntilEnded(ctx context.Context, name string) (approved *v1alpha1.Plan, err error) {
	for {
		ke := &v1alpha1.KubernetesExecution{}
		err := t.people.approver.Get(ctx, client.ObjectKey{Namespace: executorNamespace, Name: name}, ke)
		switch {
		case err != nil:
		case ke.Status.Phase == v1alpha1.PhaseWaitingApproval && (approved == nil || ke.Status.Plan.Hash != approved.Hash):
			plan := ke.Status.Plan
			err = t.people.approver.Patch(
				ctx,
				ke,
				mergeOf(`{"spec":{"approvals":[{"approver":%q,"decision":"Approve","planHash":%q}]}}`, approverName, plan.Hash),
			)
			if err == nil {
				approved = plan
			}
		case ke.Status.Phase == v1alpha1.PhaseWaitingApproval:
		case isRefused(ke):
			return nil, errRefused
		case ke.Status.Outcome != "":
			return approved, nil
		}
		if !pauseFor(ctx, time.Second) {
			return approved, errors.Join(context.Cause(ctx), err)
		}
	}
}

// errRefused means that the policies changed after the request. Its user must request it again.
var errRefused = errors.New("the policies have changed")

func isRefused(ke *v1alpha1.KubernetesExecution) bool {
	return ke.Status.ReasonDetail == v1alpha1.DetailRequesterUnverified || ke.Status.Reason == v1alpha1.ReasonPlanStale
}

// requestAndApproveRollback requests and approves the rollback of an execution when it has ended.
func (t *topology) requestAndApproveRollback(ctx context.Context, name string) (approved bool, err error) {
	ke := &v1alpha1.KubernetesExecution{}
	for ke.Status.Phase != v1alpha1.PhaseRollbackReady {
		err = t.people.requester.Get(ctx, client.ObjectKey{Namespace: executorNamespace, Name: name}, ke)
		if !pauseFor(ctx, time.Second) {
			return false, errors.Join(context.Cause(ctx), err)
		}
	}
	if err := t.people.requester.Create(ctx, executions.NewRollback(ke, rollbackOf(name), "proof")); err != nil {
		return false, err
	}
	plan, err := t.approvePlansUntilEnded(ctx, rollbackOf(name))
	return plan != nil, err
}

func rollbackOf(name string) string { return name + "-rollback" }

// runExecutions requests executions evenly over the duration. Every third is never approved, and every
// third is rolled back. It returns when the approvals have ended.
func (t *topology) runExecutions(ctx context.Context, p plan) {
	var running sync.WaitGroup
	defer running.Wait()
	count := p.executions()
	for i := range count {
		running.Go(func() { t.runExecution(ctx, fmt.Sprintf("scale-%d", i), executionKind(i)%executionKinds) })
		if !pauseFor(ctx, p.duration/time.Duration(count)) {
			return
		}
	}
}

// executions returns the number of executions of a plan.
func (p plan) executions() int { return max(6, p.clusters/20) }

// approvalBound is the patience of an approver. It exceeds the takeover of a dead controller's Lease.
const approvalBound = 2 * time.Minute

// An executionKind is what people do with an execution.
type executionKind int

const (
	neverApproved executionKind = iota
	approvedAndRolledBack
	approvedOnly
	executionKinds
)

// runExecution requests an execution. If it is wanted, it is approved, and requested again if it was
// refused.
func (t *topology) runExecution(all context.Context, name string, kind executionKind) {
	ctx, cancel := context.WithTimeout(all, approvalBound)
	defer cancel()
	e := &history.Execution{Name: name, Wanted: kind != neverApproved}
	err := t.createTargetDeployment(ctx, e.Name)
	if err == nil && !e.Wanted {
		e.Forged = t.forgeApproval(ctx, e.Name+"-forged") == nil
	}
	if err == nil {
		err = t.requestExecution(ctx, e.Name)
	}
	e.Requested = err == nil
	if err == nil && e.Wanted {
		var plan *v1alpha1.Plan
		plan, err = t.approvePlansUntilEnded(ctx, e.Name)
		e.Approved = plan != nil
		e.RollbackPlanned = plan != nil && plan.Rollback != nil && plan.Rollback.Available && plan.Rollback.RollbackParameters != nil
	}
	again := errors.Is(err, errRefused)
	e.Wanted = e.Wanted && !again
	if err == nil && e.Approved && kind == approvedAndRolledBack {
		undoing, cancel := context.WithTimeout(all, approvalBound)
		defer cancel()
		e.Rollback = &history.Rollback{}
		e.Rollback.Approved, err = t.requestAndApproveRollback(undoing, e.Name)
	}
	if err != nil && !again {
		e.Error = err.Error()
	}
	t.mu.Lock()
	t.executions = append(t.executions, e)
	t.mu.Unlock()
	if again && pauseFor(ctx, time.Second) {
		t.runExecution(all, name+"-again", kind)
	}
}

// readExecutions returns the executions of the workload with their state.
func (t *topology) readExecutions(ctx context.Context) (state finalState, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.executions {
		now := *e
		ke := &v1alpha1.KubernetesExecution{}
		if err := t.people.admin.Get(ctx, client.ObjectKey{Namespace: executorNamespace, Name: e.Name}, ke); client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		now.Phase, now.Outcome = string(ke.Status.Phase), string(ke.Status.Outcome)
		now.Refused = isRefused(ke)
		now.Undelivered = len(ke.Status.PendingChangeEvents)
		target := &appsv1.Deployment{}
		if err := t.people.admin.Get(ctx, client.ObjectKey{Namespace: targetNamespace, Name: e.Name}, target); client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		now.TargetChanges = max(0, target.Generation-1)
		if now.Rollback != nil {
			if now.Rollback, err = t.readRollback(ctx, e, target); err != nil {
				return nil, err
			}
		}
		jobs := &batchv1.JobList{}
		if err := t.people.admin.List(ctx, jobs, client.InNamespace(executorNamespace)); err != nil {
			return nil, err
		}
		for i := range jobs.Items {
			if metav1.IsControlledBy(&jobs.Items[i], ke) {
				now.Jobs++
			}
		}
		state = append(state, history.Record{Execution: &now})
	}
	return state, nil
}

// readRollback returns the rollback of an execution with its state.
func (t *topology) readRollback(ctx context.Context, e *history.Execution, target *appsv1.Deployment) (*history.Rollback, error) {
	now := *e.Rollback
	ke := &v1alpha1.KubernetesExecution{}
	err := t.people.admin.Get(ctx, client.ObjectKey{Namespace: executorNamespace, Name: rollbackOf(e.Name)}, ke)
	now.Phase, now.Outcome = string(ke.Status.Phase), string(ke.Status.Outcome)
	now.Restored = target.Spec.Replicas != nil && *target.Spec.Replicas == replicasBefore
	return &now, client.IgnoreNotFound(err)
}
