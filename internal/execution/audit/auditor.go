package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/execution"
)

// DefaultRetention is for how long records are kept.
const DefaultRetention = 90 * 24 * time.Hour

const (
	// appendTimeout bounds one call of the store for a batch.
	appendTimeout = 10 * time.Second
	// maintainEvery is how often the store is looked after, and maintainAgain how
	// soon again when that failed.
	maintainEvery = time.Hour
	maintainAgain = time.Minute
)

// ErrUnavailable means that a store could not be reached: the same may be
// appended later.
var ErrUnavailable = errors.New("the audit database is unavailable")

var errAppendTimeout = fmt.Errorf("the audit database did not answer within %s", appendTimeout)

// A Store keeps records.
type Store interface {
	// Append keeps those of the records that it does not have, all of them or
	// none. It wraps ErrUnavailable if it could not be reached.
	Append(ctx context.Context, records []Record) error
	// Open gives of executions that have neither ended nor been deleted, by what
	// was recorded, what all their records say alike, in the order of their UIDs
	// and no more than Page.Most.
	Open(ctx context.Context, p Page) ([]Record, error)
	// Maintain makes room for what comes, and forgets what is older than a
	// retention if the chain is whole: what proves that it is not stays.
	Maintain(ctx context.Context, retention time.Duration) (Maintenance, error)
}

// Maintenance is what a store found and did.
type Maintenance struct {
	End    Position // of the chain
	Pruned []string // partitions
	Broken *Break   // why nothing was pruned
}

// Config says how executions are audited.
type Config struct {
	// Cluster is the name of the cluster that executions act on, which several
	// that share a store have to differ in.
	Cluster string
	// Retention is for how long records are kept at least: whole months go.
	// Zero means DefaultRetention.
	Retention time.Duration
}

// An Auditor brings what happened to executions to a store. Sync may be called
// by any number of goroutines; what they bring at the same time is one
// transaction.
type Auditor struct {
	store   Store
	cfg     Config
	metrics *metrics
	queue   queue
	log     *slog.Logger
}

// New makes an auditor. It starts nothing.
func New(store Store, cfg Config, reg prometheus.Registerer, log *slog.Logger) (*Auditor, error) {
	if cfg.Retention == 0 {
		cfg.Retention = DefaultRetention
	}
	if cfg.Retention < 0 {
		return nil, fmt.Errorf("create auditor: negative retention %s", cfg.Retention)
	}
	m, err := newMetrics(reg)
	if err != nil {
		return nil, fmt.Errorf("create auditor: %w", err)
	}
	a := &Auditor{store: store, cfg: cfg, metrics: m, log: log}
	a.queue = queue{turn: make(chan struct{}, 1), write: a.appendRecords}
	return a, nil
}

// Sync records what is not recorded yet of what happened to an execution.
// Done says that the execution has ended and that all of it is recorded; what
// happens to it afterwards is that it is deleted. After an error nothing is
// lost: the next Sync brings the same and what has happened since.
func (a *Auditor) Sync(ctx context.Context, ke *v1alpha1.KubernetesExecution) (done bool, err error) {
	records := Records(ke, a.cfg.Cluster)
	if err := a.queue.appendRecords(ctx, records); err != nil {
		a.metrics.markWaiting(string(ke.UID), len(records))
		return false, fmt.Errorf("record audit events of execution %q: %w", ke.Namespace+"/"+ke.Name, err)
	}
	a.metrics.markRecorded(string(ke.UID))
	return execution.Ended(ke.Status.Phase), nil
}

// appendRecords is one call of the store.
func (a *Auditor) appendRecords(ctx context.Context, records []Record) error {
	// Others wait for it, too, whoever has given up.
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), appendTimeout, errAppendTimeout)
	defer cancel()
	begun := time.Now()
	err := a.store.Append(ctx, records)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	a.metrics.observeWrite(time.Since(begun), err)
	return err
}

// Run looks after the store until ctx ends: it has room for the months to come,
// and what is older than the retention goes.
func (a *Auditor) Run(ctx context.Context) error {
	failing := false
	for wait := time.Duration(0); backoff.Sleep(ctx, wait) == nil; {
		m, err := a.store.Maintain(ctx, a.cfg.Retention)
		wait = maintainEvery
		switch {
		case ctx.Err() != nil:
		case err != nil:
			wait = maintainAgain
			if !failing {
				a.log.WarnContext(ctx, "audit maintenance failed, retrying", "err", err)
			}
			failing = true
		default:
			if failing {
				a.log.InfoContext(ctx, "audit maintenance recovered")
			}
			failing = false
			a.logPosition(ctx, m)
		}
	}
	return nil
}

// logPosition leaves the end of the chain in the log, where whoever changes the
// database does not reach it.
func (a *Auditor) logPosition(ctx context.Context, m Maintenance) {
	a.metrics.observeBreak(m.Broken)
	if m.Broken != nil {
		a.log.ErrorContext(ctx, "audit verification failed, pruning is suspended",
			"position", m.Broken.Position, "kind", string(m.Broken.Kind), "why", m.Broken.Message)
	}
	a.log.InfoContext(ctx, "audit maintenance finished", "end", m.End.String(), "pruned", m.Pruned)
}
