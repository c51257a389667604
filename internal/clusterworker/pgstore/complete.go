package pgstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/pgstore/db"
)

const (
	// maxText limits the stored length of a message.
	maxText = 4 << 10
	// maxDelay limits how far a row can be postponed.
	maxDelay = 24 * time.Hour
)

// Complete writes results. A row that stays locked by another transaction counts as
// lost: it is claimed again after its lease.
func (s *Store) Complete(ctx context.Context, results []clusterworker.Result) (lost []string, err error) {
	left := slices.Clone(results)
	if len(left) == 0 {
		return nil, nil
	}
	err = s.retryWhileLocked(ctx, func(ctx context.Context) (int, error) {
		a, err := sortIntoCompleteParams(left)
		if err != nil {
			return 0, err
		}
		var written []int64
		err = s.sendBatch(ctx, func(b *pgx.Batch) {
			b.Queue(byIndex)
			collectScalars(b.Queue(db.Complete, a.IDs, a.Tokens, a.Generations, a.ClusterGenerations, a.Failed, a.Errors, a.Classes, a.Spend,
				a.Delays, a.Deleting, a.Absent, a.ShootUIDs, a.ShootGenerations, a.Changes, s.sinks, s.sinkTypes), &written)
		})
		if err != nil || len(written) == len(left) {
			left = left[:0]
			return 0, err
		}
		done := make(map[int64]bool, len(written))
		for _, token := range written {
			done[token] = true
		}
		left = slices.DeleteFunc(left, func(r clusterworker.Result) bool { return done[r.Token] })
		return s.countStillClaimed(ctx, left)
	})
	if err != nil {
		return nil, fmt.Errorf("complete claims: %w", err)
	}
	for i := range left {
		lost = append(lost, left[i].ClusterID)
	}
	return lost, nil
}

// countStillClaimed counts the claims that are valid although their results were not
// written.
func (s *Store) countStillClaimed(ctx context.Context, results []clusterworker.Result) (standing int, err error) {
	ids, tokens := make([]string, len(results)), make([]int64, len(results))
	for i := range results {
		ids[i], tokens[i] = results[i].ClusterID, results[i].Token
	}
	err = s.sendBatch(ctx, func(b *pgx.Batch) { readCount(b.Queue(db.CountClaimed, ids, tokens), &standing) })
	return standing, err
}

// sortIntoCompleteParams arranges results in columns, in the order of the ids, so that concurrent
// batches lock rows in the same order.
func sortIntoCompleteParams(results []clusterworker.Result) (a db.CompleteParams, err error) {
	slices.SortFunc(results, func(a, b clusterworker.Result) int { return cmp.Compare(a.ClusterID, b.ClusterID) })
	n := len(results)
	a = db.CompleteParams{
		IDs: make([]string, n), Tokens: make([]int64, n), Generations: make([]int64, n), ClusterGenerations: make([]int64, n),
		Failed: make([]bool, n), Errors: make([]string, n), Classes: make([]string, n), Spend: make([]bool, n), Delays: make([]int64, n),
		Deleting: make([]bool, n), Absent: make([]bool, n), ShootUIDs: make([]string, n), ShootGenerations: make([]int64, n),
		Changes: make([]string, n),
	}
	for i := range results {
		r := &results[i]
		a.IDs[i], a.Tokens[i], a.Generations[i], a.ClusterGenerations[i] = r.ClusterID, r.Token, r.Generation, r.ClusterGeneration
		a.Spend[i], a.Deleting[i], a.Absent[i] = r.Spend, r.Deleting, r.Absent
		a.ShootUIDs[i], a.ShootGenerations[i] = sanitizeText(r.Applied.UID), r.Applied.Generation
		if a.Changes[i], err = encodeChange(r.Change); err != nil {
			return a, err
		}
		if r.Err != nil {
			a.Failed[i], a.Errors[i], a.Classes[i] = true, sanitizeText(r.Err.Error()), sanitizeText(string(r.Class))
			a.Delays[i] = min(max(r.Delay, 0), maxDelay).Microseconds()
		}
	}
	return a, nil
}

// sanitizeText returns s in a form that PostgreSQL accepts, cut to maxText. A rejected
// text would block everything in the same write.
func sanitizeText(s string) string {
	s = strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "\uFFFD")
	if len(s) <= maxText {
		return s
	}
	end := maxText
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}
