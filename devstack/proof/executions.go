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
	"github.com/fleetloop/fleetloop/internal/app/executionapp"
	"github.com/fleetloop/fleetloop/internal/execution/guard"
	"github.com/fleetloop/fleetloop/internal/execution/roles"
	"github.com/fleetloop/fleetloop/internal/kube"
	"github.com/fleetloop/fleetloop/internal/kube/executions"
	"github.com/fleetloop/fleetloop/internal/settings"
)

const (
	executionReplicas = 2

	executorNamespace = guard.DefaultNamespace
	targetNamespace   = "shop" // a production namespace, where changes need an approval
	requesterName     = "alice"
	approverName      = "bob"
	runnerImage       = "localhost/fleetloop/action-runner:proof"

	replicasBefore, replicasAfter = 3, 5
)

// A hostClients holds the clients of the people and of an administrator of the host cluster.
type hostClients struct{ admin, requester, approver client.Client }

// startExecutions installs what executions need, runs a node for their Jobs, and starts the controllers.
func (t *topology) startExecutions(ctx context.Context) (err error) {
	kube.RedirectLibraryLogs(slog.New(slog.DiscardHandler))
	cfg := executionapp.OverriddenDefaults().Part
	if _, err := settings.Load(&cfg, settings.Source{}); err != nil {
		return err
	}
	cfg.Namespace = executorNamespace
	if err := executionapp.ApplyRequiredObjects(ctx, t.kube.Config(), cfg, executionapp.Targets{Namespaces: []string{targetNamespace}}); err != nil {
		return err
	}
	if err := t.installPeople(ctx); err != nil {
		return err
	}
	node, err := processnode.New(t.kube.Config(), processnode.Options{Images: map[string][]string{runnerImage: {filepath.Join(t.binDir(), "action-runner")}}})
	if err != nil {
		return err
	}
	t.simulated.Go(func() { _ = node.Run(ctx) }) // ends only with ctx
	account := "system:serviceaccount:" + executorNamespace + ":" + roles.ControllerAccount
	kubeconfig, err := t.kube.Kubeconfig(account, "system:serviceaccounts", "system:serviceaccounts:"+executorNamespace, "system:authenticated")
	if err != nil {
		return err
	}
	return t.addReplicas(ctx, "execution-controller", executionReplicas, func(p *process, _ string) {
		// The image is a program of the node, so there is nothing to pull.
		p.args = []string{"--kubeconfig=" + kubeconfig, "--namespace=" + executorNamespace, "--runner-image=" + runnerImage, "--runner-pull-policy=Never"}
		p.env["DATABASE_URL"] = t.database.urlFor()
		maps.Copy(p.env, t.sink.env())
	})
}

// installPeople lets one person request and another one approve, in a namespace of production.
func (t *topology) installPeople(ctx context.Context) (err error) {
	for user, c := range map[string]*client.Client{"root": &t.people.admin, requesterName: &t.people.requester, approverName: &t.people.approver} {
		var groups []string
		if user == "root" {
			groups = []string{"system:masters"}
		}
		if *c, err = t.newHostClient(user, groups...); err != nil {
			return err
		}
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: targetNamespace}}
	if err := t.people.admin.Patch(ctx, ns, mergeOf(`{"metadata":{"labels":{"environment":"production"}}}`)); err != nil {
		return err
	}
	bind := map[string][]string{approverName: {v1alpha1.ApproverRole}}
	for _, r := range roles.RequesterClusterRolesByRisk() {
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
			Action:     "scale_deployment",
			Parameters: &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"namespace":%q,"deployment":%q,"replicas":%d}`, targetNamespace, name, replicasAfter)},
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

// createTarget creates a Deployment without Pods: no controller of Deployments runs.
func (t *topology) createTarget(ctx context.Context, name string) error {
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

// approve approves the plan of an execution when it is ready, and returns the plan.
func (t *topology) approve(ctx context.Context, name string) (*v1alpha1.Plan, error) {
	ke, err := t.awaitPhase(ctx, name, v1alpha1.PhaseWaitingApproval)
	if err != nil {
		return nil, err
	}
	plan := ke.Status.Plan
	return plan, t.people.approver.Patch(ctx, ke, mergeOf(`{"spec":{"approvals":[{"approver":%q,"decision":"Approve","planHash":%q}]}}`, approverName, plan.Hash))
}

// awaitPhase waits until an execution has reached a phase.
func (t *topology) awaitPhase(ctx context.Context, name string, phase v1alpha1.Phase) (*v1alpha1.KubernetesExecution, error) {
	for {
		ke := &v1alpha1.KubernetesExecution{}
		err := t.people.approver.Get(ctx, client.ObjectKey{Namespace: executorNamespace, Name: name}, ke)
		if err == nil && ke.Status.Phase == phase {
			return ke, nil
		}
		if !pauseFor(ctx, time.Second) {
			return nil, errors.Join(context.Cause(ctx), err)
		}
	}
}

// rollBack requests and approves the rollback of an execution when it has ended.
func (t *topology) rollBack(ctx context.Context, name string) error {
	ke, err := t.awaitPhase(ctx, name, v1alpha1.PhaseRollbackReady)
	if err != nil {
		return err
	}
	back := executions.NewRollback(ke, rollbackOf(name), "proof")
	if err := t.people.requester.Create(ctx, back); err != nil {
		return err
	}
	_, err = t.approve(ctx, back.Name)
	return err
}

func rollbackOf(name string) string { return name + "-rollback" }

// runExecutions requests executions evenly over the duration. Every third is never approved, and every
// third is rolled back. It returns when the approvals have ended.
func (t *topology) runExecutions(ctx context.Context, p plan) {
	var running sync.WaitGroup
	defer running.Wait()
	count := p.executions()
	for i := range count {
		running.Go(func() { t.runExecution(ctx, i) })
		if !pauseFor(ctx, p.duration/time.Duration(count)) {
			return
		}
	}
}

// executions returns the number of executions of a plan.
func (p plan) executions() int { return max(6, p.clusters/20) }

// approvalBound is the patience of an approver. It exceeds the takeover of a dead controller's Lease.
const approvalBound = 2 * time.Minute

func (t *topology) runExecution(ctx context.Context, i int) {
	requesting, cancel := context.WithTimeout(ctx, approvalBound)
	defer cancel()
	e := &history.Execution{Name: fmt.Sprintf("scale-%d", i), Wanted: i%3 != 0}
	err := t.createTarget(requesting, e.Name)
	if err == nil && !e.Wanted {
		e.Forged = t.forgeApproval(requesting, e.Name+"-forged") == nil
	}
	if err == nil {
		err = t.requestExecution(requesting, e.Name)
	}
	e.Requested = err == nil
	if err == nil && e.Wanted {
		var plan *v1alpha1.Plan
		plan, err = t.approve(requesting, e.Name)
		e.Approved = err == nil
		e.RollbackPlanned = plan != nil && plan.Rollback != nil && plan.Rollback.Available && plan.Rollback.RollbackParameters != nil
	}
	if e.Approved && i%3 == 1 {
		undoing, cancel := context.WithTimeout(ctx, approvalBound)
		defer cancel()
		err = t.rollBack(undoing, e.Name)
		e.Rollback = &history.Rollback{Approved: err == nil}
	}
	if err != nil {
		e.Error = err.Error()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.executions = append(t.executions, e)
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
