package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/deploy"
	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/devstack/processnode"
	"github.com/fleetloop/fleetloop/devstack/remediation"
	"github.com/fleetloop/fleetloop/internal/app/executionapp"
	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/execution/guard"
	"github.com/fleetloop/fleetloop/internal/execution/roles"
	"github.com/fleetloop/fleetloop/internal/kube"
	"github.com/fleetloop/fleetloop/internal/settings"
)

const (
	executor    = guard.DefaultNamespace
	cheap       = "cheap" // a development namespace without approvals
	dear        = "dear"  // a production namespace, where changes need an approval
	requester   = "alice"
	approver    = "bob"
	runnerImage = "localhost/fleetloop/action-runner:bench"

	replicasBefore, replicasAfter = 3, 5
)

// executionOptions changes the settings of a bed. The zero value is the released controller, on a
// cluster without Pods.
type executionOptions struct {
	jobs      bool     // Pods run, with the controllers of a cluster and a node
	untrailed bool     // without an audit log, which costs the API server time
	args      []string // additional arguments of the controller
	env       []string
}

// An executionBed is a cluster for executions: a real API server with an audit log, the
// installation for executions, PostgreSQL with synchronous commits, and the controller as its
// binary with its service account.
type executionBed struct {
	bed                        *kubebed.Bed
	admin, requester, approver client.WithWatch
	trail                      *auditTrail
	controller                 *exec.Cmd
	ended                      chan error // the controller's error; closed after that
	dir                        string     // with the binaries

	end []func() error // in the order of calls
}

func (b *executionBed) onStop(end func() error) { b.end = append([]func() error{end}, b.end...) }

func (b *executionBed) stopBed() error {
	var errs []error
	for _, end := range b.end {
		errs = append(errs, end())
	}
	return errors.Join(errs...)
}

// startExecutionBed starts a bed whose controller is ready.
func startExecutionBed(ctx context.Context, progress io.Writer, o executionOptions) (b *executionBed, err error) {
	_, _ = fmt.Fprintln(progress, "starting a control plane, PostgreSQL and the execution controller")
	kube.RedirectLibraryLogs(slog.New(slog.DiscardHandler))
	b = &executionBed{}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.stopBed())
		}
	}()
	dir, remove, err := tempDir()
	if err != nil {
		return b, err
	}
	b.dir = dir
	b.onStop(func() error { remove(); return nil })
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", dir+"/", "./cmd/execution-controller", "./cmd/action-runner") //nolint:gosec // our own programs
	build.Stderr, build.Env = progress, append(os.Environ(), "CGO_ENABLED=0")
	if err := build.Run(); err != nil {
		return b, fmt.Errorf("build the binaries: %w", err)
	}
	db, err := startMigratedDatabase(ctx, filepath.Join(dir, "database"), true)
	if err != nil {
		return b, err
	}
	b.onStop(db.stopServer)
	if err := b.startClusterWithCRDs(ctx, o); err != nil {
		return b, err
	}
	if err := b.installObjectsAndUsers(ctx); err != nil {
		return b, err
	}
	return b, b.startController(ctx, db.server.DatabaseURL(), o)
}

// startClusterWithCRDsAndRoles starts the API server, and the components that run Pods.
func (b *executionBed) startClusterWithCRDs(ctx context.Context, o executionOptions) (err error) {
	options := kubebed.Options{}
	if !o.untrailed {
		if b.trail, err = newAuditTrail(b.dir, trailPolicy); err != nil {
			return err
		}
		options.Args = map[string][]string{kubebed.APIServer: b.trail.apiServerArgs()}
	}
	if o.jobs {
		options.Controllers, options.Scheduler = kubebed.JobControllers(), true
	}
	if b.bed, err = kubebed.Start(ctx, options); err != nil {
		return err
	}
	b.onStop(b.bed.Stop)
	for _, crd := range [][]byte{deploy.KubernetesExecutionCRD, remediation.CRD} {
		if err := b.bed.InstallCRDText(ctx, crd); err != nil {
			return err
		}
	}
	if b.admin, err = b.clientAs("root", "system:masters"); err != nil {
		return err
	}
	// The API server lists new resource types with a short delay.
	err = b.eventually(ctx, func(ctx context.Context) error {
		return errors.Join(b.admin.List(ctx, &v1alpha1.KubernetesExecutionList{}), b.admin.List(ctx, &remediation.RequestList{}))
	})
	if err != nil || !o.jobs {
		return err
	}
	return b.startNode(ctx)
}

// startNode runs Pods as processes.
func (b *executionBed) startNode(ctx context.Context) error {
	node, err := processnode.New(
		b.bed.Config(),
		processnode.Options{Images: map[string][]string{runnerImage: {filepath.Join(b.dir, "action-runner")}}},
	)
	if err != nil {
		return err
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- node.Run(running) }()
	b.onStop(func() error { cancel(); return <-done })
	return nil
}

func (b *executionBed) clientAs(user string, groups ...string) (client.WithWatch, error) {
	cfg, err := b.bed.User(user, groups...)
	if err != nil {
		return nil, err
	}
	cfg.QPS = -1
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme), remediation.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	return client.NewWithWatch(cfg, client.Options{Scheme: scheme})
}

// installObjectsAndUsers installs the objects that executions need, and the users who request and approve.
func (b *executionBed) installObjectsAndUsers(ctx context.Context) (err error) {
	cfg := executionapp.OverriddenDefaults().Part
	if _, err := settings.Load(&cfg, settings.Source{}); err != nil {
		return err
	}
	cfg.Namespace = executor
	if err := executionapp.ApplyRequiredObjects(ctx, b.bed.Config(), cfg, executionapp.Targets{Namespaces: []string{cheap, dear}}); err != nil {
		return err
	}
	for name, environment := range map[string]string{cheap: "development", dear: "production"} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := b.admin.Patch(ctx, ns, newMergePatch(`{"metadata":{"labels":{"environment":%q}}}`, environment)); err != nil {
			return err
		}
	}
	bind := map[string][]string{approver: {v1alpha1.ApproverRole}}
	for _, r := range roles.RequesterClusterRolesUpToRisk() {
		bind[requester] = append(bind[requester], r.Name)
	}
	for user, names := range bind {
		for _, name := range names {
			err := b.admin.Create(ctx, &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: user + "-" + name, Namespace: executor},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
				Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
			})
			if err != nil {
				return err
			}
		}
	}
	if b.requester, err = b.clientAs(requester); err != nil {
		return err
	}
	if b.approver, err = b.clientAs(approver); err != nil {
		return err
	}
	return b.eventually(ctx, b.checkForgedApprovalDenied)
}

// checkForgedApprovalDenied returns an error while requesters and approvers are not checked yet: policies are in
// force shortly after their creation.
func (b *executionBed) checkForgedApprovalDenied(ctx context.Context) error {
	honest := newScaleExecution("guarded", cheap, "none", "")
	if err := b.requester.Create(ctx, honest, client.DryRunAll); err != nil || honest.Spec.RequestedBy != requester {
		return fmt.Errorf("%q may not ask: %w", requester, err)
	}
	forged := newScaleExecution("guarded", cheap, "none", "")
	forged.Spec.Approvals = []v1alpha1.Approval{{Approver: approver, Decision: v1alpha1.Approve, PlanHash: "none"}}
	if err := b.requester.Create(ctx, forged, client.DryRunAll); !apierrors.IsForbidden(err) {
		return fmt.Errorf("an invalid approval is not rejected: %w", err)
	}
	return nil
}

func newMergePatch(format string, values ...any) client.Patch {
	return client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, format, values...))
}

// controllerUser is the controller's user name for the API server.
const controllerUser = "system:serviceaccount:" + executor + ":" + roles.ControllerAccount

// startController runs the controller, and waits until it is ready. Without a rollback window
// executions end when their action has ended.
func (b *executionBed) startController(ctx context.Context, databaseURL string, o executionOptions) error {
	// A token, as Pods have one. It is valid for longer than the measurement.
	kubeconfig, err := b.bed.WriteAccountKubeconfig(ctx, executor, roles.ControllerAccount)
	if err != nil {
		return err
	}
	logged, err := os.Create(filepath.Join(b.dir, "controller.log"))
	if err != nil {
		return err
	}
	b.onStop(logged.Close)
	args := append([]string{
		"--kubeconfig=" + kubeconfig, "--namespace=" + executor, "--runner-image=" + runnerImage, "--runner-pull-policy=Never", "--admission-policy-propagation-delay=10ms",
		"--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0", "--rollback-window=0",
	}, o.args...)
	b.controller = exec.CommandContext(context.WithoutCancel(ctx), filepath.Join(b.dir, "execution-controller"), args...) //nolint:gosec // our own program
	b.controller.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + b.dir, "DATABASE_URL=" + databaseURL, "LOG_FORMAT=json"}, o.env...)
	b.controller.Stdout, b.controller.Stderr = logged, logged
	if err := b.controller.Start(); err != nil {
		return fmt.Errorf("start the controller: %w", err)
	}
	b.ended = make(chan error, 1)
	go func() {
		b.ended <- b.controller.Wait()
		close(b.ended)
	}()
	b.onStop(func() error {
		_ = b.controller.Process.Kill() // it may have ended
		<-b.ended
		return nil
	})
	return b.eventually(ctx, func(ctx context.Context) error {
		select {
		case err := <-b.ended:
			return finalError{fmt.Errorf("the controller has ended: %w: %s", err, b.logTail())}
		default:
			return b.checkControllerReady(ctx)
		}
	})
}

const executorGroup = "system:serviceaccounts:" + executor

// logTail returns the end of the controller's log.
func (b *executionBed) logTail() string {
	const most = 4000
	text, err := os.ReadFile(filepath.Join(b.dir, "controller.log"))
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-most):])
}

// checkControllerReady checks the controller's readiness endpoint.
func (b *executionBed) checkControllerReady(ctx context.Context) error {
	text, err := os.ReadFile(filepath.Join(b.dir, "controller.log"))
	if err != nil {
		return err
	}
	for said := range strings.Lines(string(text)) {
		var at struct{ Msg, Server, Addr string }
		if json.Unmarshal([]byte(said), &at) != nil || at.Msg != "listening" || !strings.Contains(at.Server, "health") {
			continue
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at.Addr+"/readyz", http.NoBody)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("the controller is not ready: %s", resp.Status)
		}
		return nil
	}
	return errors.New("the controller does not listen yet")
}

// finalError is a permanent error.
type finalError struct{ error }

// eventually calls check until it returns nil.
func (b *executionBed) eventually(ctx context.Context, check func(context.Context) error) error {
	const every = 100 * time.Millisecond
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if final := (finalError{}); errors.As(err, &final) {
			return final.error
		}
		if stopped := backoff.Sleep(ctx, every); stopped != nil {
			return fmt.Errorf("%w; at last: %w; the controller said: %s", stopped, err, b.logTail())
		}
	}
}

// createDeployments creates Deployments without Pods.
func (b *executionBed) createDeployments(ctx context.Context, namespace string, n int) ([]string, error) {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("target-%04d", i))
	}
	return names, runForEachInParallel(names, func(name string) error {
		labels, replicas := map[string]string{"app": name}, int32(replicasBefore)
		return b.admin.Create(ctx, &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
			Spec: appsv1.DeploymentSpec{
				Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "localhost/web:1"}}},
				},
			},
		})
	})
}

// newScaleExecution returns an execution that scales a target.
func newScaleExecution(name, namespace, target string, mode v1alpha1.ExecutionMode) *v1alpha1.KubernetesExecution {
	return &v1alpha1.KubernetesExecution{
		ObjectMeta: metav1.ObjectMeta{Namespace: executor, Name: name},
		Spec: v1alpha1.KubernetesExecutionSpec{
			Action: "scale_deployment", ExecutionMode: mode,
			Parameters: &runtime.RawExtension{
				Raw: fmt.Appendf(nil, `{"namespace":%q,"deployment":%q,"replicas":%d}`, namespace, target, replicasAfter),
			},
		},
	}
}

// approvePlan approves the plan of an execution.
func (b *executionBed) approvePlan(ctx context.Context, ke *v1alpha1.KubernetesExecution) error {
	return b.approver.Patch(
		ctx,
		ke,
		newMergePatch(`{"spec":{"approvals":[{"approver":%q,"decision":"Approve","planHash":%q}]}}`, approver, ke.Status.Plan.Hash),
	)
}

// runForEachInParallel calls f for each element, several concurrently, and returns the first error.
func runForEachInParallel[T any](all []T, f func(T) error) error {
	const atOnce = 16
	errs := make(chan error, atOnce)
	for part := range atOnce {
		go func() {
			for i := part; i < len(all); i += atOnce {
				if err := f(all[i]); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	var failed []error
	for range atOnce {
		failed = append(failed, <-errs)
	}
	return errors.Join(slices.DeleteFunc(failed, func(err error) bool { return err == nil })...)
}
