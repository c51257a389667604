// Package operator moves each KubernetesExecution of a namespace from phase to phase. It runs
// the planned actions as Jobs and records their results.
//
// The state of an execution is in its status and its Job, so a restarted operator continues
// where the previous one stopped. Each transition is one write of the status, which the API
// server refuses if the object changed in the meantime. Reconciles do not block: deadlines are
// in the status or follow from it. Changes of Jobs and Pods, the emergency stop, and the end of
// other executions wake the affected executions.
package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/check"
	"github.com/fleetloop/fleetloop/internal/execution/guard"
	"github.com/fleetloop/fleetloop/internal/execution/job"
	"github.com/fleetloop/fleetloop/internal/kube"
	"github.com/fleetloop/fleetloop/internal/lifecycle"
)

// component is the name of the operator in events and field managers.
const component = "fleetloop-execution-controller"

// Config selects the executions to run and how to run them.
type Config struct {
	// Namespace is the namespace of the executions, their Jobs and the action accounts.
	Namespace string

	// Job configures the Jobs.
	Job job.Options

	// Inline lists the actions that an execution may run in this process. Empty means none.
	Inline []string
	// DefaultMode is the mode of executions that name none. Empty means in a Job.
	DefaultMode v1alpha1.ExecutionMode

	ApprovalTimeout time.Duration // default of executions; zero means 1 h
	RollbackWindow  time.Duration // duration of rollback_ready; zero means that it ends immediately
	CheckTimeout    time.Duration // how long checks that cannot run are retried; zero means 5 min
	TTL             time.Duration // of an execution after its end; zero means 24 h
	JobTTL          time.Duration // of a Job after its result is stored; zero means 5 min

	// DryRun makes every execution a dry run, so that nothing is executed.
	DryRun bool

	// Leader is the name of the Lease among replicas. Empty means a single replica without leader
	// election.
	Leader string
	// Outbox limits the delivery of change events.
	Outbox OutboxConfig

	// Audited enables the audit: executions are kept until they are recorded.
	Audited bool
}

func (c Config) withDefaults() Config {
	c.ApprovalTimeout = cmp.Or(c.ApprovalTimeout, time.Hour)
	c.CheckTimeout = cmp.Or(c.CheckTimeout, 5*time.Minute)
	c.TTL = cmp.Or(c.TTL, 24*time.Hour)
	c.JobTTL = cmp.Or(c.JobTTL, 5*time.Minute)
	c.DefaultMode = cmp.Or(c.DefaultMode, v1alpha1.ExecuteInJob)
	return c
}

// checker checks executions and computes their plans. *check.Checker implements it.
type checker interface {
	Check(ctx context.Context, ke *v1alpha1.KubernetesExecution, dry *action.Result, now time.Time) (check.Outcome, error)
	Replan(ctx context.Context, ke *v1alpha1.KubernetesExecution, now time.Time) (check.Outcome, error)
	EvaluatePostConditions(ctx context.Context, ke *v1alpha1.KubernetesExecution, actionEnded, now time.Time) (
		results []v1alpha1.ConditionResult, wait time.Duration, err error)
}

// identities returns clients that act as the accounts of actions. *roles.Identities implements
// it.
type identities interface {
	Client(ctx context.Context, a *action.Action) (action.Client, error)
}

// admissionGuard returns the period in which the API server has checked requesters and approvers
// without a gap. *guard.Watch and guard.Off implement it.
type admissionGuard interface {
	// Period returns the last observed period without a gap, or why none exists.
	Period() (guard.Period, error)
	// Confirm returns Period after a check that begins after the call.
	Confirm(ctx context.Context) (guard.Period, error)
}

// auditor writes audit records of executions.
type auditor interface {
	// Sync reports whether the execution has ended and all its records are durable.
	Sync(ctx context.Context, ke *v1alpha1.KubernetesExecution) (endedAndRecorded bool, err error)
	// RecordDeletion records a deleted execution. ke is its last known state; unseen means that at is
	// when the deletion was noticed, not when it happened.
	RecordDeletion(ctx context.Context, ke *v1alpha1.KubernetesExecution, deletedAt time.Time, unseen bool) error
}

// auditArchive is an auditor that can also close executions whose end was missed.
type auditArchive interface {
	auditor
	missedDeletionRecorder
}

// Deps are the dependencies of an operator. All but Auditor, Recorder, StatusWritten, Log and
// Registerer are required.
type Deps struct {
	Host       *rest.Config
	Check      checker
	Identities identities
	Gate       *execution.Gate
	Guard      admissionGuard
	Auditor    auditArchive // required if Config.Audited is true
	Recorder   execution.Recorder
	// Sinks receive the change events.
	Sinks []Sink
	Event func(execution.Change) changeevent.ChangeEvent
	// StatusWritten receives each status that was sent to the API server, and the error of the write.
	StatusWritten func(context.Context, *v1alpha1.KubernetesExecutionStatus, error)

	Log        *slog.Logger
	Registerer prometheus.Registerer
}

func (d Deps) withDefaults() Deps {
	if d.Recorder == nil {
		d.Recorder = nopRecorder{}
	}
	if d.StatusWritten == nil {
		d.StatusWritten = func(context.Context, *v1alpha1.KubernetesExecutionStatus, error) {}
	}
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	if d.Registerer == nil {
		d.Registerer = prometheus.NewRegistry()
	}
	return d
}

// Operator runs executions. Create it with New and run its Part once.
type Operator struct {
	cfg     Config
	log     *slog.Logger
	manager *kube.Manager

	synced  atomic.Bool           // whether the executions have been listed
	trouble atomic.Pointer[error] // error of the last list or watch
}

// New creates an operator. It does not contact the host cluster yet.
func New(cfg Config, deps Deps) (*Operator, error) {
	cfg = cfg.withDefaults()
	deps = deps.withDefaults()
	switch {
	case cfg.Namespace == "":
		return nil, errors.New("create operator: namespace is required")
	case deps.Host == nil:
		return nil, errors.New("create operator: host cluster is required")
	case cfg.Audited && deps.Auditor == nil:
		return nil, errors.New("create operator: auditor is required")
	}

	writes, err := newWriteCounter(deps.Registerer)
	if err != nil {
		return nil, fmt.Errorf("create operator: %w", err)
	}
	deps.Host = writes.newCountingConfig(deps.Host)

	o := &Operator{cfg: cfg, log: deps.Log}
	o.manager, err = o.newManager(deps.Host)
	if err != nil {
		return nil, fmt.Errorf("create operator: %w", err)
	}
	if err := o.addControllers(deps); err != nil {
		return nil, fmt.Errorf("create operator: %w", err)
	}
	return o, nil
}

// newManager creates the manager of the controllers, which caches only the objects that they need.
func (o *Operator) newManager(host *rest.Config) (*kube.Manager, error) {
	scheme := runtime.NewScheme()
	err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme), batchv1.AddToScheme(scheme))
	if err != nil {
		return nil, err
	}
	cached, err := cacheOptions(o.cfg.Namespace)
	if err != nil {
		return nil, err
	}
	return kube.NewManager(host, kube.Options{
		Scheme: scheme,
		Namespaced: []schema.GroupVersionKind{
			v1alpha1.GroupVersion.WithKind(v1alpha1.Kind),
			batchv1.SchemeGroupVersion.WithKind("Job"),
			corev1.SchemeGroupVersion.WithKind("Pod"),
			corev1.SchemeGroupVersion.WithKind("ConfigMap"),
		},
		Leader:    kube.Leader{Namespace: o.cfg.Namespace, Name: o.cfg.Leader},
		Cache:     cached,
		Log:       o.log,
		OnTrouble: func(err error) { o.trouble.Store(&err) },
	})
}

type nopRecorder struct{}

// Record does nothing.
func (nopRecorder) Record(context.Context, execution.Change) {}

// Part returns the operator as a part of a process.
func (o *Operator) Part() lifecycle.Part {
	return kube.NewManagerPart("execution controller", o.manager, o.Ready)
}

// Ready returns why executions do not progress. A replica that waits for leadership is ready.
func (o *Operator) Ready() error {
	if o.synced.Load() {
		return nil
	}
	if err := o.trouble.Load(); err != nil {
		return fmt.Errorf("list executions in namespace %q: %w", o.cfg.Namespace, *err)
	}
	return fmt.Errorf("executions in namespace %q have not been listed yet", o.cfg.Namespace)
}

// logKey returns the namespace and name of an execution for logs.
func logKey(ke *v1alpha1.KubernetesExecution) string { return ke.Namespace + "/" + ke.Name }

func nameOf(ke *v1alpha1.KubernetesExecution) types.NamespacedName {
	return types.NamespacedName{Namespace: ke.Namespace, Name: ke.Name}
}

func toAPITime(t time.Time) *metav1.Time { return &metav1.Time{Time: t.Truncate(time.Second)} }
