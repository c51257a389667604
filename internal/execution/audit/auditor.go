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

// DefaultRetention is the default period for which records are kept.
const DefaultRetention = 90 * 24 * time.Hour

const (
	// appendTimeout limits one call of the store for a batch.
	appendTimeout = 10 * time.Second
	// maintainEvery is the interval of store maintenance, and maintainAgain the interval after a
	// failure.
	maintainEvery = time.Hour
	maintainAgain = time.Minute
)

// ErrUnavailable means that the store could not be reached. The same records may be appended later.
var ErrUnavailable = errors.New("the audit database is unavailable")

var errAppendTimeout = fmt.Errorf("the audit database did not answer within %s", appendTimeout)

// A Store keeps records.
type Store interface {
	// Append stores the records that are not stored yet, all of them or none. It wraps
	// ErrUnavailable if the store could not be reached.
	Append(ctx context.Context, records []Record) error
	// ListOpenExecutions returns, for executions with neither an end nor a deletion on record, the fields that
	// all their records share. The order is by UID, and the length at most Page.Most.
	ListOpenExecutions(ctx context.Context, p Page) ([]Record, error)
	// Maintain prepares room for new records, and drops those older than the retention if the chain
	// is intact. Records that prove a break are kept.
	Maintain(ctx context.Context, retention time.Duration) (Maintenance, error)
}

// Maintenance is the result of Store.Maintain.
type Maintenance struct {
	End    Position // of the chain
	Pruned []string // partitions
	Broken *Break   // non-nil if the chain is broken; nothing is pruned then
}

// Config configures an Auditor.
type Config struct {
	// Cluster is the name of the cluster on which executions act. Clusters that share a store need
	// different names.
	Cluster string
	// Retention is the minimum period for which records are kept; whole months are dropped. Zero
	// means DefaultRetention.
	Retention time.Duration
}

// An Auditor writes the history of executions to a store. Sync is safe for concurrent use, and
// concurrent calls share one transaction.
type Auditor struct {
	store   Store
	cfg     Config
	metrics *metrics
	queue   queue
	log     *slog.Logger
}

// New creates an auditor. It starts nothing.
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
	a.queue = queue{turn: make(chan struct{}, 1), write: a.appendToStore}
	return a, nil
}

// Sync writes the records of an execution that are not stored yet, and reports whether the execution
// has ended and is completely recorded; only its deletion can follow. An error loses nothing: the
// next Sync writes the same records and newer ones.
func (a *Auditor) Sync(ctx context.Context, ke *v1alpha1.KubernetesExecution) (endedAndRecorded bool, err error) {
	if err := a.appendRecords(ctx, ke, Records(ke, a.cfg.Cluster)); err != nil {
		return false, fmt.Errorf("record audit events of execution %q: %w", ke.Namespace+"/"+ke.Name, err)
	}
	return execution.IsFinal(ke.Status.Phase), nil
}

// appendRecords appends records of an execution, and counts them as waiting if that fails.
func (a *Auditor) appendRecords(ctx context.Context, ke *v1alpha1.KubernetesExecution, records []Record) error {
	if err := a.queue.appendInBatch(ctx, records); err != nil {
		a.metrics.markWaiting(string(ke.UID), len(records))
		return err
	}
	a.metrics.clearWaiting(string(ke.UID))
	return nil
}

// appendToStore makes one call of the store.
func (a *Auditor) appendToStore(ctx context.Context, records []Record) error {
	// The batch contains records of other callers, so this caller must not cancel it.
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

// RunMaintenance maintains the store until ctx ends: it prepares the coming months and drops records older
// than the retention.
func (a *Auditor) RunMaintenance(ctx context.Context) error {
	var wait time.Duration
	failing := false
	for backoff.Sleep(ctx, wait) == nil {
		m, err := a.store.Maintain(ctx, a.cfg.Retention)
		if err != nil {
			if !failing && ctx.Err() == nil {
				a.log.WarnContext(ctx, "audit maintenance failed, retrying", "err", err)
			}
			failing, wait = true, maintainAgain
			continue
		}
		if failing {
			a.log.InfoContext(ctx, "audit maintenance recovered")
		}
		failing, wait = false, maintainEvery
		a.logAndRecordMaintenance(ctx, m)
	}
	return nil
}

// logAndRecordMaintenance logs the end of the chain, out of reach of anyone who changes the database.
func (a *Auditor) logAndRecordMaintenance(ctx context.Context, m Maintenance) {
	a.metrics.setVerificationFailedGauge(m.Broken)
	if m.Broken != nil {
		a.log.ErrorContext(ctx, "audit verification failed, pruning is suspended",
			"position", m.Broken.Position, "kind", string(m.Broken.Kind), "why", m.Broken.Message)
	}
	a.log.InfoContext(ctx, "audit maintenance finished", "end", m.End.String(), "pruned", m.Pruned)
}
