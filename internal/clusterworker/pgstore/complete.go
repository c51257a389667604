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
	left := slices.Clone(results)
	if len(left) == 0 {
		return nil, nil
	}
	err = retryWhileRowsLocked(ctx, func(ctx context.Context) (int, error) {
		args, err := SortResultsAndBuildArgs(left, s.sinks.names, s.sinks.types)
		if err != nil {
			return 0, err
		}
		var written []int64
		err = s.db.runBatch(ctx, "complete claims", func(b *pgx.Batch) {
			b.Queue(byIndex)
			scanScalarsInto(b.Queue(db.Complete, args...), &written)
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
		return countStillClaimed(ctx, s.db, left)
	})
	if err != nil {
		return nil, err
	}
	for i := range left {
		lostClusterIDs = append(lostClusterIDs, left[i].ClusterID)
	}
	return lostClusterIDs, nil
}

// countStillClaimed counts the claims that are valid although their results were not
// written.
func countStillClaimed(ctx context.Context, conn database, results []clusterworker.Result) (claimed int, err error) {
	ids, tokens := make([]string, len(results)), make([]int64, len(results))
	for i := range results {
		ids[i], tokens[i] = results[i].ClusterID, results[i].Token
	}
	err = conn.queryRow(ctx, "complete claims", []any{&claimed}, db.CountClaimed, ids, tokens)
	return claimed, err
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
