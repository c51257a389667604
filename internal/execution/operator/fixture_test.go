package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/check"
	"github.com/fleetloop/fleetloop/internal/execution/guard"
	"github.com/fleetloop/fleetloop/internal/execution/job"
)

const namespace = "kubernaut-executor"

// A fixture is an API server with executions, Jobs and targets, in memory, and
// what an operator asks about them. It keeps the one promise that the operator
// counts on: a write at another version than the current one is refused.
type fixture struct {
	now      time.Time
	versions int
	store    map[types.NamespacedName]*v1alpha1.KubernetesExecution
	past     map[types.NamespacedName][]*v1alpha1.KubernetesExecution // versions before the current one
	jobs     map[string]*batchv1.Job
	pods     map[types.UID][]corev1.Pod
	targets  map[string]int // how many replicas there are, by name
	policy   string         // the hash of the policies
	approval bool           // whether they want an approval
	guard    error
	period   guard.Period // of the guard; its gaps are over
	post     []v1alpha1.ConditionResult
	postWait time.Duration
	window   time.Duration // for which an execution is rollback_ready

	noJobController bool // nothing reports Jobs as suspended

	// fault is called before (before=true) and after each write. An error from it
	// is what the operator gets.
	fault func(what string, before bool) error

	effects []effect // Jobs that were made, and inline actions that were let go
	acts    []act
	looking string             // the execution that is looked at
	trusted map[types.UID]bool // executions whose approval was counted while there was a guard
	away    error              // why nobody can act inline
	writes  []string
	changes []execution.Change
}

// An effect is a Job that began, or an inline action that may from then on, with
// what was so at that time.
type effect struct {
	execution types.UID
	plan      v1alpha1.Plan
	needed    bool // an approval
	approvals []v1alpha1.Approval
	flag      bool
	requester string
	replicas  int // that the target had
	policy    string
	unguarded bool // the approval was counted while the guard was missing
}

func newFixture() *fixture {
	return &fixture{
		now: time.Date(2026, 5, 1, 3, 0, 0, 0, time.UTC), store: map[types.NamespacedName]*v1alpha1.KubernetesExecution{},
		trusted: map[types.UID]bool{}, past: map[types.NamespacedName][]*v1alpha1.KubernetesExecution{},
		jobs: map[string]*batchv1.Job{}, pods: map[types.UID][]corev1.Pod{}, targets: map[string]int{"web": 3, "api": 3}, policy: "p1",
		fault: func(string, bool) error { return nil }, window: 5 * time.Minute,
		period: guard.Period{ID: "period-1", Since: time.Unix(0, 0)},
	}
}

// A guarding is the guard of a fixture.
type guarding struct{ w *fixture }

func (g guarding) Period() (guard.Period, error) {
	if g.w.guard != nil {
		return guard.Period{}, g.w.guard
	}
	return g.w.period, nil
}

func (g guarding) Confirm(context.Context) (guard.Period, error) { return g.Period() }

// newReconciler is an operator that has just started.
func (w *fixture) newReconciler(cfg Config) *reconciler {
	cfg.Namespace, cfg.RollbackWindow = namespace, w.window
	cfg.Job = job.Options{Namespace: namespace, Image: "runner@sha256:1"}
	g, err := execution.NewGate(execution.GateConfig{MaxConcurrent: 2})
	if err != nil {
		panic(err)
	}
	cfg = cfg.withDefaults()
	return newReconciler(&cfg, ports{
		executions: storedExecutions{w}, jobs: storedJobs{w}, check: checks{w}, gate: g, identities: accounts{w},
		guard: guarding{w}, recorder: w, events: events.NewFakeRecorder(10000),
		targets: nothingFollowed{}, metrics: newMetrics(prometheus.NewRegistry()), log: slog.New(slog.DiscardHandler), now: func() time.Time { return w.now },
		readStop: func(context.Context) error { return nil }, halted: &atomic.Bool{},
	})
}

// reconcile looks once.
func (w *fixture) reconcile(r *reconciler, name string) (reconcile.Result, error) {
	w.looking = name
	return r.Reconcile(context.Background(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
}

// create asks for an execution.
func (w *fixture) create(name, target string, change func(*v1alpha1.KubernetesExecution)) {
	ke := &v1alpha1.KubernetesExecution{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, UID: types.UID("uid-" + name), Generation: 1, CreationTimestamp: metav1.NewTime(w.now)},
		Spec: v1alpha1.KubernetesExecutionSpec{
			Action: "scale_deployment", RequestedBy: "alice",
			Parameters: &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"deployment":%q,"namespace":"shop","replicas":5}`, target)},
		},
	}
	if change != nil {
		change(ke)
	}
	w.put(ke)
}

func (w *fixture) put(ke *v1alpha1.KubernetesExecution) {
	if before := w.store[nameOf(ke)]; before != nil {
		w.past[nameOf(ke)] = append(w.past[nameOf(ke)], before)
	}
	w.versions++
	ke.ResourceVersion = strconv.Itoa(w.versions)
	w.store[nameOf(ke)] = ke.DeepCopy()
}

// get reads an execution.
func (w *fixture) get(name string) *v1alpha1.KubernetesExecution {
	return w.store[types.NamespacedName{Namespace: namespace, Name: name}]
}

// edit is what somebody else does to an execution.
func (w *fixture) edit(name string, change func(*v1alpha1.KubernetesExecution)) {
	ke := w.get(name).DeepCopy()
	change(ke)
	ke.Generation++
	w.put(ke)
}

// remove is that somebody deletes an execution.
func (w *fixture) remove(name string) {
	ke := w.get(name)
	if len(ke.Finalizers) == 0 {
		w.gone(ke)
		return
	}
	w.edit(name, func(ke *v1alpha1.KubernetesExecution) {
		if now := metav1.NewTime(w.now); ke.DeletionTimestamp == nil {
			ke.DeletionTimestamp = &now
		}
	})
}

// gone takes an execution away, and what belongs to it.
func (w *fixture) gone(ke *v1alpha1.KubernetesExecution) {
	delete(w.store, nameOf(ke))
	delete(w.jobs, actionJobName(ke))
}

// end has the Job of an execution end.
func (w *fixture) end(name string, code action.Code) {
	ke := w.get(name)
	j := w.jobs[job.Name(ke.UID, v1alpha1.PurposeExecute, 1)]
	p, err := decodeJobPlan(j)
	if err != nil {
		panic(err)
	}
	result := action.Result{Version: 1, Code: code, Attempt: 1, PlanHash: p.Hash, Changed: code == action.CodeOK, Started: w.now, Ended: w.now}
	if code == action.CodeOK {
		result.Resources, result.Count = []v1alpha1.AffectedResource{{Kind: "Deployment", Namespace: "shop", Name: p.Target.Name, Action: "scaled"}}, 1
		w.targets[p.Target.Name] = 5
	}
	phase, condition := corev1.PodSucceeded, batchv1.JobComplete
	if code != action.CodeOK {
		phase, condition = corev1.PodFailed, batchv1.JobFailed
	}
	w.pods[j.UID] = []corev1.Pod{{
		ObjectMeta: metav1.ObjectMeta{Name: j.Name + "-0", Namespace: namespace, CreationTimestamp: metav1.NewTime(w.now)},
		Status: corev1.PodStatus{Phase: phase, ContainerStatuses: []corev1.ContainerStatus{{
			Name: job.Container, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: int32(code), Message: action.EncodeBounded(result), StartedAt: metav1.NewTime(w.now), FinishedAt: metav1.NewTime(w.now), ContainerID: "x",
			}},
		}}},
	}}
	j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{Type: condition, Status: corev1.ConditionTrue})
}

// plan is the plan for a target as it is now.
func (w *fixture) plan(ctx context.Context, ke *v1alpha1.KubernetesExecution) *v1alpha1.Plan {
	request, err := action.Parse(&ke.Spec)
	if err != nil {
		panic(err)
	}
	p, err := request.Plan(ctx, action.Client{Dynamic: cluster{w: w}}, planSubject(ke))
	if err != nil {
		panic(err)
	}
	p.PolicyHash = w.policy
	p.Hash = action.HashPlanEffect(p)
	return p
}

// Record remembers.
func (w *fixture) Record(_ context.Context, c execution.Change) { w.changes = append(w.changes, c) }

var errCrash = errors.New("the operator is gone")

// write is one write.
func (w *fixture) write(what string, do func() error) error {
	if err := w.fault(what, true); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	w.writes = append(w.writes, what)
	return w.fault(what, false)
}

type storedExecutions struct{ w *fixture }

func (s storedExecutions) Get(_ context.Context, name types.NamespacedName) (*v1alpha1.KubernetesExecution, error) {
	if ke := s.w.store[name]; ke != nil {
		return ke.DeepCopy(), nil
	}
	return nil, nil //nolint:nilnil // as the port has it
}

func (s storedExecutions) List(context.Context) ([]v1alpha1.KubernetesExecution, error) {
	var list []v1alpha1.KubernetesExecution
	for _, ke := range s.w.store {
		list = append(list, *ke.DeepCopy())
	}
	return list, nil
}

// current refuses what is not the current version.
func (s storedExecutions) current(ke *v1alpha1.KubernetesExecution) (*v1alpha1.KubernetesExecution, error) {
	of := schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: v1alpha1.Resource}
	stored := s.w.store[nameOf(ke)]
	if stored == nil {
		return nil, apierrors.NewNotFound(of, ke.Name)
	}
	if stored.ResourceVersion != ke.ResourceVersion {
		return nil, apierrors.NewConflict(of, ke.Name, errors.New("it has changed"))
	}
	return stored.DeepCopy(), nil
}

func (s storedExecutions) ApplyStatus(_ context.Context, ke *v1alpha1.KubernetesExecution, owner string) error {
	return s.w.write("status "+string(ke.Status.Phase), func() error {
		stored, err := s.current(ke)
		if err != nil {
			return err
		}
		s.w.letGo(stored, ke)
		if owner == auditComponent {
			stored.Status.Conditions = append(stored.Status.Conditions, ke.Status.Conditions...)
		} else {
			recorded := findCondition(&stored.Status, v1alpha1.ConditionAuditRecorded)
			stored.Status = *ke.Status.DeepCopy()
			if recorded != nil {
				meta.SetStatusCondition(&stored.Status.Conditions, *recorded)
			}
		}
		s.w.put(stored)
		*ke = *s.w.store[nameOf(ke)].DeepCopy()
		return nil
	})
}

func (s storedExecutions) SetFinalizer(_ context.Context, ke *v1alpha1.KubernetesExecution, present bool) error {
	if has := len(ke.Finalizers) > 0; has == present {
		return nil
	}
	return s.w.write("finalizer", func() error {
		stored, err := s.current(ke)
		if err != nil {
			return err
		}
		stored.Finalizers = nil
		if present {
			stored.Finalizers = []string{v1alpha1.Finalizer}
		}
		s.w.put(stored)
		*ke = *s.w.store[nameOf(ke)].DeepCopy()
		if !present && !ke.DeletionTimestamp.IsZero() {
			s.w.gone(ke)
		}
		return nil
	})
}

func (s storedExecutions) Delete(_ context.Context, ke *v1alpha1.KubernetesExecution) error {
	return s.w.write("delete", func() error { delete(s.w.store, nameOf(ke)); return nil })
}

type storedJobs struct{ w *fixture }

func (s storedJobs) Job(_ context.Context, _ *v1alpha1.KubernetesExecution, name string, _ bool) (*batchv1.Job, error) {
	if j := s.w.jobs[name]; j != nil {
		return j.DeepCopy(), nil
	}
	return nil, nil //nolint:nilnil // as the port has it
}

func (s storedJobs) Pods(_ context.Context, j *batchv1.Job, _ bool) ([]corev1.Pod, error) {
	return s.w.pods[j.UID], nil
}

func (s storedJobs) ActionJobNames(context.Context) (map[string]bool, error) {
	names := map[string]bool{}
	for name := range s.w.jobs {
		names[name] = true
	}
	return names, nil
}

func (s storedJobs) CreateOrGet(_ context.Context, ke *v1alpha1.KubernetesExecution, j *batchv1.Job) (*batchv1.Job, error) {
	if there := s.w.jobs[j.Name]; there != nil {
		return there.DeepCopy(), nil
	}
	err := s.w.write("job", func() error {
		made := j.DeepCopy()
		made.UID, made.CreationTimestamp = types.UID("job-"+j.Name), metav1.NewTime(s.w.now)
		s.w.jobs[j.Name] = made
		p, err := decodeJobPlan(made)
		if err != nil {
			return err
		}
		s.w.begins(s.w.get(ke.Name), p)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s.w.jobs[j.Name].DeepCopy(), nil
}

func (s storedJobs) PatchSpec(_ context.Context, j *batchv1.Job, spec map[string]any) error {
	return s.w.write("job patch", func() error {
		stored := s.w.jobs[j.Name]
		if stored == nil {
			return nil
		}
		if ttl, ok := spec["ttlSecondsAfterFinished"].(int64); ok {
			seconds := int32(ttl)
			stored.Spec.TTLSecondsAfterFinished = &seconds
		}
		if suspend, ok := spec["suspend"].(bool); ok {
			stored.Spec.Suspend = &suspend
			if suspend && !s.w.noJobController {
				stored.Status.Conditions = append(stored.Status.Conditions, batchv1.JobCondition{Type: batchv1.JobSuspended, Status: corev1.ConditionTrue})
			}
		}
		return nil
	})
}

func (s storedJobs) StopPod(_ context.Context, pod *corev1.Pod) error {
	return s.w.write("pod stop", func() error { one := int64(1); pod.Spec.ActiveDeadlineSeconds = &one; return nil })
}

func (s storedJobs) Delete(_ context.Context, j *batchv1.Job) error {
	return s.w.write("job delete", func() error { delete(s.w.jobs, j.Name); return nil })
}

// checks say yes.
type checks struct{ w *fixture }

func (c checks) Check(ctx context.Context, ke *v1alpha1.KubernetesExecution, _ *action.Result, _ time.Time) (check.Outcome, error) {
	return check.Outcome{
		Results:  v1alpha1.ValidationResults{ParameterValidation: true, RBACValidation: true, ResourceExists: true},
		Plan:     c.w.plan(ctx, ke),
		Decision: execution.Decision{Allow: true, RequireApproval: c.w.approval, Approvals: execution.Approvals{Count: 1, RequesterCannotApprove: true}, PolicyHash: c.w.policy},
	}, nil
}

func (c checks) Replan(ctx context.Context, ke *v1alpha1.KubernetesExecution, now time.Time) (check.Outcome, error) {
	out, err := c.Check(ctx, ke, nil, now)
	if ke.Status.Plan != nil {
		out.Plan.AdmissionPolicyPeriod = ke.Status.Plan.AdmissionPolicyPeriod
		out.Plan.Hash = action.HashPlanEffect(out.Plan)
	}
	return out, err
}

func (c checks) EvaluatePostConditions(context.Context, *v1alpha1.KubernetesExecution, time.Time, time.Time) ([]v1alpha1.ConditionResult, time.Duration, error) {
	return c.w.post, c.w.postWait, nil
}

type nothingFollowed struct{}

func (nothingFollowed) watchTarget(types.NamespacedName, v1alpha1.Target) {}
func (nothingFollowed) stopWaiting(types.NamespacedName)                  {}
