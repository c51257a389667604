package poller

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/google/uuid"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// processInbox handles all observations in the inbox.
func (s *session) processInbox(ctx context.Context) {
	s.flushing = false
	part := make(map[key]observation, maxBatch)
	rest := s.inbox.takeAll()
	for k, n := range rest {
		if d, ok := s.later[k]; ok { // it is older, but a check for drift is still due
			n.thorough = n.thorough || d.s.thorough
			rest[k] = n
			delete(s.later, k)
		}
		switch {
		case n.err != nil:
			s.handleReadFailure(ctx, k, n)
			delete(rest, k)
		case !isID(k.cluster), s.cacheIfUnchanged(k, &n):
			delete(rest, k)
		}
	}
	for len(rest) > 0 {
		clear(part)
		for k, n := range rest {
			if len(part) == maxBatch {
				break
			}
			part[k] = n
		}
		if err := s.processObservations(ctx, part); err != nil {
			s.inbox.putBack(rest)
			if ctx.Err() == nil {
				s.noteDatabaseFailure(ctx, "save status of Shoots", err)
				s.scheduleFlush(databasePolicy().Delay(s.dbFailures))
			}
			return
		}
		s.dbFailures = 0
		for k := range part {
			delete(rest, k)
		}
	}
}

// isID reports whether a label can be the id of a cluster. The database would reject a
// query for any other text.
func isID(cluster string) bool {
	const length = 36 // uuid.Validate accepts longer and shorter forms as well
	return len(cluster) == length && uuid.Validate(cluster) == nil
}

// cacheIfUnchanged reports whether an event changes nothing, compared with the cached row, and then
// caches its Shoot. The
// absence of a Shoot always counts as a change, and so does any requested observation.
func (s *session) cacheIfUnchanged(k key, n *observation) bool {
	if !n.told || n.thorough || n.shoot == nil {
		return false
	}
	e, ok := s.book.getEntry(k.cluster)
	if !ok || e.row.ShootName != k.name {
		return false
	}
	j, ok := s.classifySafely(&e.row, n)
	if !ok || j != (judgement{}) {
		return false
	}
	s.book.putEntry(&e.row, n.shoot)
	return true
}

// classifySafely classifies a row, and recovers from a panic, so that a faulty Shoot
// does not affect the others.
func (s *session) classifySafely(row *clusterworker.Row, n *observation) (j judgement, ok bool) {
	defer func() {
		if v := recover(); v != nil {
			s.metrics.countFailure(classPanic)
			s.log.Error("panic recovered, shoot skipped", "cluster_id", row.ClusterID, "shoot", row.ShootName, "err", fmt.Sprint(v), "stack", string(debug.Stack()))
			j, ok = judgement{}, false
		}
	}()
	return classifyRow(row, s.installation, n), true
}

// processObservations handles some observations against the current rows.
func (s *session) processObservations(ctx context.Context, part map[key]observation) error {
	ids := make([]string, 0, len(part))
	for k := range part {
		ids = append(ids, k.cluster)
	}
	rows, err := s.rowsOf(ctx, ids)
	if err != nil {
		return err
	}
	var b batch
	for k, n := range part {
		row, ok := rows[k.cluster]
		switch {
		case !ok:
			s.book.removeEntry(k.cluster)
		case row.ShootName == k.name:
			s.addToBatch(&b, row, n, n.polled)
		}
	}
	return s.commitBatch(ctx, &b)
}

// rowsOf reads the existing rows of the given clusters.
func (s *session) rowsOf(ctx context.Context, ids []string) (map[string]*clusterworker.Row, error) {
	ctx, cancel := queryTime(ctx)
	defer cancel()
	list, err := s.deps.Store.RowsOf(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("read sync rows of %d clusters: %w", len(ids), err)
	}
	rows := make(map[string]*clusterworker.Row, len(list))
	for i := range list {
		rows[list[i].ClusterID] = &list[i]
	}
	return rows, nil
}

// addToBatch adds the consequences of an observation for a row to a batch. recordCheck is
// whether to record the time of the observation even if nothing has changed.
func (s *session) addToBatch(b *batch, row *clusterworker.Row, n observation, recordCheck bool) {
	j, ok := s.classifySafely(row, &n)
	if !ok {
		return
	}
	o := ownShoot(row, s.installation, n.shoot)
	k := key{row.ClusterID, row.ShootName}
	switch {
	case j.look && n.tries > maxTries && !n.waited:
		s.delayObservation(k, n, databasePolicy().Delay(n.tries))
	case j.look:
		asked := *row
		s.inbox.requestRead(liveRead{key: k, asked: &asked, thorough: n.thorough, polled: n.polled, tries: n.tries + 1})
	}
	if j.drift != DriftNone {
		b.addRequeue(j.drift, row, n)
	}
	if j.change != nil {
		b.changes = append(b.changes, *j.change)
		c := cause{row: *row, seen: o, from: n}
		if n.told && o != nil && o.LastOperation != nil && s.book.isNewOperation(row.ClusterID, o.LastOperation.Updated) {
			c.began = o.LastOperation.Updated
		}
		b.causes = append(b.causes, c)
		return
	}
	s.book.putEntry(row, o)
	if recordCheck && !j.look && row.ShootName != "" {
		b.touch = append(b.touch, row.ClusterID)
	}
}

// handleReadFailure schedules another live read. A poll reaches the Shoot again in any case,
// and reads others first.
func (s *session) handleReadFailure(ctx context.Context, k key, n observation) {
	s.noteGardenerFailure(ctx, "get Shoot", n.err)
	if n.polled {
		s.skipForSomeRounds(k)
		return
	}
	wait := max(gardenerPolicy().Delay(n.tries), min(shoot.RetryAfter(n.err), backoff.MaxRetryAfter))
	s.delayObservation(k, n, wait)
}

// delayObservation delays an observation, which is handled later unless a newer one arrives
// first. It confirms nothing by then.
func (s *session) delayObservation(k key, n observation, after time.Duration) {
	n.tries++
	n.waited = true
	n.asked, n.err = nil, nil
	at := time.Now().Add(after)
	s.later[k] = delayed{at: at, s: n}
	if s.nextBack.IsZero() || at.Before(s.nextBack) {
		s.nextBack = at
		s.laterAt.Reset(after)
	}
}

// returnDelayedToInbox returns the delayed observations that are due to the inbox.
func (s *session) returnDelayedToInbox() {
	due, now := map[key]observation{}, time.Now()
	s.nextBack = time.Time{}
	for k, d := range s.later {
		switch {
		case !d.at.After(now):
			due[k] = d.s
			delete(s.later, k)
		case s.nextBack.IsZero() || d.at.Before(s.nextBack):
			s.nextBack = d.at
		}
	}
	s.inbox.putBack(due)
	if !s.nextBack.IsZero() {
		s.laterAt.Reset(time.Until(s.nextBack))
	}
}
