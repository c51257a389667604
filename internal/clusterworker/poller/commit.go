package poller

import (
	"context"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// A batch is a set of changes that are written together.
type batch struct {
	changes []clusterworker.StatusChange
	causes  []cause // one per change
	touch   []string
	drifts  map[string]drifted // by cluster
}

// A cause is the observation behind a change.
type cause struct {
	row  clusterworker.Row
	seen *shoot.Observed // nil if the Shoot was absent
	from observation
	// began is when Gardener began the operation that a watch reported, zero if the
	// watch reported no new operation.
	began time.Time
}

type drifted struct {
	drift Drift
	shoot string
	from  observation
}

func (b *batch) addRequeue(d Drift, row *clusterworker.Row, from observation) {
	if b.drifts == nil {
		b.drifts = map[string]drifted{}
	}
	b.drifts[row.ClusterID] = drifted{d, row.ShootName, from}
}

// A statusWriter writes what observations mean for their rows.
type statusWriter struct {
	poller       *Poller
	tenure       *leadership
	inbox        *inbox
	book         *statusCache
	later        *delays
	installation string
}

// cacheIfUnchanged reports whether an event changes nothing, compared with the cached row, and then
// caches its Shoot. The
// absence of a Shoot always counts as a change, and so does any requested observation.
func (w *statusWriter) cacheIfUnchanged(k key, n *observation) bool {
	if !n.told || n.thorough || n.shoot == nil {
		return false
	}
	e, ok := w.book.getEntry(k.cluster)
	if !ok || e.row.ShootName != k.name {
		return false
	}
	j, ok := w.classifySafely(&e.row, n)
	if !ok || j != (judgement{}) {
		return false
	}
	w.book.putEntry(&e.row, n.shoot)
	return true
}

// classifySafely classifies a row, and recovers from a panic, so that a faulty Shoot
// does not affect the others.
func (w *statusWriter) classifySafely(row *clusterworker.Row, n *observation) (j judgement, ok bool) {
	defer func() {
		if v := recover(); v != nil {
			w.poller.metrics.countFailure(classPanic)
			w.poller.log.Error("panic recovered, shoot skipped", "cluster_id", row.ClusterID, "shoot", row.ShootName, "err", fmt.Sprint(v), "stack", string(debug.Stack()))
			j, ok = judgement{}, false
		}
	}()
	return classifyRow(row, w.installation, n), true
}

// addToBatch adds the consequences of an observation for a row to a batch. recordCheck is
// whether to record the time of the observation even if nothing has changed.
func (w *statusWriter) addToBatch(b *batch, row *clusterworker.Row, n observation, recordCheck bool) {
	j, ok := w.classifySafely(row, &n)
	if !ok {
		return
	}
	o := ownShoot(row, w.installation, n.shoot)
	k := key{row.ClusterID, row.ShootName}
	switch {
	case j.look && n.tries > maxTries && !n.waited:
		w.later.add(k, n, databasePolicy().Delay(n.tries))
	case j.look:
		asked := *row
		w.inbox.requestRead(liveRead{key: k, asked: &asked, thorough: n.thorough, polled: n.polled, tries: n.tries + 1})
	}
	if j.drift != DriftNone {
		b.addRequeue(j.drift, row, n)
	}
	if j.change != nil {
		b.changes = append(b.changes, *j.change)
		c := cause{row: *row, seen: o, from: n}
		if n.told && o != nil && o.LastOperation != nil && w.book.isNewOperation(row.ClusterID, o.LastOperation.Updated) {
			c.began = o.LastOperation.Updated
		}
		b.causes = append(b.causes, c)
		return
	}
	w.book.putEntry(row, o)
	if recordCheck && !j.look && row.ShootName != "" {
		b.touch = append(b.touch, row.ClusterID)
	}
}

// commit writes a batch.
func (w *statusWriter) commit(ctx context.Context, b *batch) error {
	if len(b.changes) > 0 {
		n, err := w.saveChanges(ctx, b)
		if err != nil {
			return err
		}
		if n > 0 {
			w.poller.deps.Wrote()
		}
	}
	if len(b.drifts) > 0 {
		if err := w.requeueDrifted(ctx, b.drifts); err != nil {
			return err
		}
	}
	for part := range slices.Chunk(b.touch, maxBatch) {
		err := w.tenure.writeFenced(ctx, func(ctx context.Context, fence int64) error {
			return w.poller.deps.Store.Touch(ctx, fence, part)
		})
		if err != nil {
			return fmt.Errorf("record check of %d clusters: %w", len(part), err)
		}
	}
	return nil
}

// saveChanges writes the changes of a batch, and returns how many rows were written.
// The others have changed since they were read, or are being changed, and are checked
// again.
func (w *statusWriter) saveChanges(ctx context.Context, b *batch) (int, error) {
	var saved []string
	now := time.Now()
	for i := range b.changes {
		c := &b.changes[i]
		// The row is unknown until the result of the write is known.
		w.book.removeEntry(c.ClusterID)
		c.Change = changeEventOf(c, &b.causes[i].row, now)
	}
	err := w.tenure.writeFenced(ctx, func(ctx context.Context, fence int64) (err error) {
		saved, err = w.poller.deps.Store.SaveStatus(ctx, fence, b.changes)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("save status of %d Shoots: %w", len(b.changes), err)
	}
	now = time.Now()
	written := setOf(saved)
	for i := range b.changes {
		c := &b.causes[i]
		if written[c.row.ClusterID] {
			w.noteSaved(ctx, &b.changes[i], c, now)
			continue
		}
		w.later.add(key{c.row.ClusterID, c.row.ShootName}, c.from, databasePolicy().Delay(c.from.tries))
	}
	return len(saved), nil
}

// noteSaved caches a written change and records its event.
func (w *statusWriter) noteSaved(ctx context.Context, c *clusterworker.StatusChange, by *cause, now time.Time) {
	was := by.row.Status
	row := by.row
	row.Status, row.StatusMessage, row.ReadyOnce = c.Status, c.Message, row.ReadyOnce || c.Status == v1.ShootReady
	if c.ShootUID != "" {
		row.ShootUID = c.ShootUID
	}
	if !by.began.IsZero() {
		w.poller.metrics.lag.Observe(max(0, now.Sub(by.began)).Seconds())
	}
	if c.Status == v1.ShootDeleted {
		w.book.removeEntry(c.ClusterID)
	} else {
		w.book.putEntry(&row, by.seen)
	}
	if c.Status == was {
		return
	}
	w.poller.metrics.countChange(c.Status)
	w.poller.log.DebugContext(ctx, "shoot status changed", "cluster_id", c.ClusterID, "shoot", row.ShootName, "was", was, "is", c.Status, "message", c.Message)
	if c.Change == nil {
		return
	}
	if c.Status == v1.ShootError {
		w.poller.log.WarnContext(ctx, "shoot failed", "cluster_id", c.ClusterID, "cluster", row.Name, "shoot", row.ShootName, "message", c.Message)
	}
	w.poller.deps.Recorder.Record(ctx, *c.Change)
}

// requeueDrifted requeues the clusters whose Shoots differ from their last applied
// spec. Rows that it does not requeue have changed or are being changed, for example by a
// report to the API, and are checked again.
func (w *statusWriter) requeueDrifted(ctx context.Context, all map[string]drifted) error {
	ids := slices.Collect(maps.Keys(all))
	var requeued []string
	err := w.tenure.writeFenced(ctx, func(ctx context.Context, fence int64) (err error) {
		requeued, err = w.poller.deps.Store.Requeue(ctx, fence, ids)
		return err
	})
	if err != nil {
		return fmt.Errorf("requeue %d clusters: %w", len(ids), err)
	}
	counts, done := map[Drift]int{}, setOf(requeued)
	for id := range done {
		d := all[id]
		counts[d.drift]++
		w.poller.log.DebugContext(ctx, "shoot drifted, cluster requeued", "cluster_id", id, "shoot", d.shoot, "reason", d.drift)
	}
	for id, d := range all {
		if !done[id] {
			w.later.add(key{id, d.shoot}, d.from, databasePolicy().Delay(d.from.tries))
		}
	}
	for _, drift := range allDrifts() {
		if n := counts[drift]; n > 0 {
			w.poller.metrics.drift.WithLabelValues(string(drift)).Add(float64(n))
			w.poller.log.InfoContext(ctx, "shoots drifted, clusters requeued", "reason", drift, "shoots", n)
		}
	}
	return nil
}

func setOf(ids []string) map[string]bool {
	set := make(map[string]bool, len(ids))
	for _, id := range ids {
		set[id] = true
	}
	return set
}

// changeEventOf returns the change event of a new status of a row, nil without an event.
func changeEventOf(c *clusterworker.StatusChange, row *clusterworker.Row, now time.Time) *clusterworker.Change {
	action, ok := actionOf(c.Status)
	if !ok || c.Status == row.Status {
		return nil
	}
	return &clusterworker.Change{
		At: now, Action: action, ClusterID: c.ClusterID, Cluster: row.Name, Tenant: row.Tenant,
		Shoot: row.ShootName, Generation: row.ClusterGeneration, Message: c.Message,
	}
}

// actionOf returns the action of a change event for a new status, or false if the
// status has no event.
func actionOf(st v1.ShootStatus) (clusterworker.Action, bool) {
	switch st {
	case v1.ShootReady:
		return clusterworker.ShootReady, true
	case v1.ShootError:
		return clusterworker.ShootFailed, true
	case v1.ShootDeleted:
		return clusterworker.ShootDeleted, true
	case v1.ShootPending, v1.ShootProgressing, v1.ShootDeleting:
	}
	return "", false
}
