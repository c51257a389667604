package pgstore

import (
	"context"
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

// WriteResults writes results. A row that stays locked by another transaction counts as
// lost: it is claimed again after its lease.
func (s *Store) WriteResults(ctx context.Context, results []clusterworker.Result) (lostClusterIDs []string, err error) {
	unwritten := slices.Clone(results)
	if len(unwritten) == 0 {
		return nil, nil
	}
	err = retryBrieflyWhileRowsLocked(ctx, func(ctx context.Context) (lockedRows int, err error) {
		unwritten, lockedRows, err = s.writeResultsOnce(ctx, unwritten)
		return lockedRows, err
	})
	if err != nil {
		return nil, err
	}
	for i := range unwritten {
		lostClusterIDs = append(lostClusterIDs, unwritten[i].ClusterID)
	}
	return lostClusterIDs, nil
}

// writeResultsOnce writes results, and returns those that it did not write. lockedRows is how many of their claims are
// valid nevertheless.
func (s *Store) writeResultsOnce(
	ctx context.Context, results []clusterworker.Result,
) (unwritten []clusterworker.Result, lockedRows int, err error) {
	args, err := SortResultsAndBuildArgs(results, s.sinks.names, s.sinks.types)
	if err != nil {
		return nil, 0, err
	}
	writtenTokens, err := queryScalars[int64](ctx, s.indexed, "complete claims", db.Complete, args...)
	if err != nil || len(writtenTokens) == len(results) {
		return nil, 0, err
	}
	unwritten = slices.DeleteFunc(results, func(r clusterworker.Result) bool { return slices.Contains(writtenTokens, r.Token) })
	ids, tokens := make([]string, len(unwritten)), make([]int64, len(unwritten))
	for i := range unwritten {
		ids[i], tokens[i] = unwritten[i].ClusterID, unwritten[i].Token
	}
	err = s.db.queryRow(ctx, "complete claims", []any{&lockedRows}, db.CountClaimed, ids, tokens)
	return unwritten, lockedRows, err
}

// RecordCreation records the creation of a Shoot, with its change event. A claim whose row stays locked by another
// transaction counts as lost.
func (s *Store) RecordCreation(ctx context.Context, claim clusterworker.Claim, change clusterworker.Change) (stands bool, err error) {
	event, err := marshalChangeOrEmpty(&change)
	if err != nil {
		return false, err
	}
	ids, tokens := splitIntoColumns([]clusterworker.Claim{claim})
	err = retryBrieflyWhileRowsLocked(ctx, func(ctx context.Context) (lockedRows int, err error) {
		var claimed int
		err = s.indexed.runBatch(ctx, "record creation", func(b *pgx.Batch) {
			scanRowInto(b.Queue(db.RecordCreation, claim.ClusterID, claim.Token,
				sanitizeAndTruncateText(claim.ReportedShootUID), event, s.sinks.names, s.sinks.types), &stands)
			scanRowInto(b.Queue(db.CountClaimed, ids, tokens), &claimed)
		})
		if stands {
			return 0, err
		}
		return claimed, err
	})
	return stands && err == nil, err
}

// sanitizeAndTruncateText returns s in a form that PostgreSQL accepts, cut to maxText. A rejected
// text would block everything in the same write.
func sanitizeAndTruncateText(text string) string {
	text = strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "\uFFFD")
	if len(text) <= maxText {
		return text
	}
	end := maxText
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}
