package fleetapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/google/uuid"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
	"github.com/fleetloop/fleetloop/internal/fleetapi/rest"
)

// Bounds of a bulk load. The number of lines is unlimited.
const (
	// A batch ends at the first of these limits. Beyond a thousand rows, the cost of a transaction
	// is negligible next to that of its rows.
	batchRows  = 2000
	batchBytes = 4 << 20
)

// A Batch is a set of new rows that differ only in what their owner gave.
type Batch struct {
	// Common is the shared part of the rows. Its id and content are not used.
	Common Record
	Rows   []BatchRow
}

// A BatchRow is the individual part of a row of a batch.
type BatchRow struct {
	ID string
	Content
}

// A Loader is a Tx that inserts batches.
type Loader interface {
	// InsertRowsWithFreeNames inserts the rows whose names are not in use, and returns how many it inserted.
	InsertRowsWithFreeNames(ctx context.Context, b *Batch) (insertedCount int, err error)

	// FindFirstNotInserted returns the index of the first row of a batch that was not inserted.
	FindFirstNotInserted(ctx context.Context, b *Batch) (int, error)
}

// handleBulkLoad creates a resource from each line of the body, batch by batch. A created batch stays, even if a
// later one fails.
func (rs resourceRoutes) handleBulkLoad(w http.ResponseWriter, r *http.Request, principal auth.Principal) error {
	by, err := authorizeVerb(principal, v1.VerbCreate)
	if err != nil {
		return err
	}
	parentID, err := rs.parseParentIDFromPath(r)
	if err != nil {
		return err
	}
	skipExisting, err := parseIfExistsParameter(r.URL.Query())
	if err != nil {
		return err
	}
	if e := rest.CheckContentType(r, v1.ContentTypeNDJSON); e != nil {
		return e
	}
	began := time.Now()
	lines := newLineReader(w, r.Body, rs.api.maxBody)
	defer lines.setFinalDeadlines()
	l := bulkLoader{service: &rs.api.resourceService, kind: rs.kind, by: by, parentID: parentID, skipExisting: skipExisting}
	err = l.loadAllLines(r.Context(), lines)
	rs.api.log.InfoContext(r.Context(), "bulk load finished", "kind", rs.kind.name, "subject", principal.Actor(),
		"created", l.result.Created, "skipped", l.result.Skipped, "took", time.Since(began), "complete", err == nil)
	if err != nil {
		return l.addLoadedCounts(err)
	}
	return rest.WriteJSONValue(w, http.StatusOK, l.result)
}

func parseIfExistsParameter(query url.Values) (skipExisting bool, err error) {
	if err := checkQueryParameters(query, "if_exists"); err != nil {
		return false, err
	}
	if !query.Has("if_exists") {
		return false, nil
	}
	text := query.Get("if_exists")
	switch v1.IfExists(text) {
	case v1.IfExistsFail:
		return false, nil
	case v1.IfExistsSkip:
		return true, nil
	}
	return false, rest.NewQueryError("if_exists", "enum", text, "must be %s or %s", v1.IfExistsFail, v1.IfExistsSkip)
}

// A bulkLoader is a bulk load in progress.
type bulkLoader struct {
	service      *resourceService
	kind         *kind
	by           author
	parentID     string
	skipExisting bool

	// The batch that is being collected.
	rows        []BatchRow
	lineNumbers []int // of each row in the body
	batchSize   int   // in bytes

	result v1.LoadResult
}

func (l *bulkLoader) loadAllLines(ctx context.Context, lines *lineReader) error {
	for {
		line, err := lines.readLine()
		if errors.Is(err, io.EOF) {
			lines.clearReadDeadline()
			return l.createBatchedResources(ctx)
		}
		if err == nil && len(bytes.TrimSpace(line)) > 0 {
			err = l.validateAndAddLine(line, lines.number)
		}
		if err != nil {
			return addLineNumber(lines.number, err)
		}
		if len(l.rows) >= batchRows || l.batchSize >= batchBytes {
			lines.clearReadDeadline()
			if err := l.createBatchedResources(ctx); err != nil {
				return err
			}
		}
	}
}

// validateAndAddLine validates a line like the body of a request that creates one resource.
func (l *bulkLoader) validateAndAddLine(line []byte, number int) error {
	var req v1.CreateRequest
	if e := rest.DecodeStrictJSON("the line", line, &req); e != nil {
		return e
	}
	content, err := validateCreateRequest(l.kind, &req)
	if err != nil {
		return err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("make an id: %w", err)
	}
	l.rows = append(l.rows, BatchRow{ID: id.String(), Content: content})
	l.lineNumbers = append(l.lineNumbers, number)
	l.batchSize += len(line)
	return nil
}

// createBatchedResources creates the collected resources in one transaction.
func (l *bulkLoader) createBatchedResources(ctx context.Context) error {
	if len(l.rows) == 0 {
		return nil
	}
	guarded, err := l.service.deletionWaitsForShoot(ctx, l.kind)
	if err != nil {
		return err
	}
	var created int
	err = l.service.store.RunInTx(ctx, l.by.scope, func(ctx context.Context, tx Tx) error {
		now, err := tx.ReadBeginTime(ctx)
		if err != nil {
			return err
		}
		common := Locked{Now: now, Shoot: ShootState{Guarded: guarded}, Record: Record{ParentID: l.parentID}}
		if err := l.service.initRowAndLockParent(ctx, tx, l.by, l.kind, &common); err != nil {
			return err
		}
		if err := l.checkSpecsAgainstSchema(ctx, tx); err != nil {
			return err
		}
		inserted, err := l.insertBatchOrFailOnTakenName(ctx, tx, &Batch{Common: common.Record, Rows: l.rows})
		created = inserted
		return err
	})
	if err != nil {
		return err
	}
	l.result.Created += int64(created)
	l.result.Skipped += int64(len(l.rows) - created)
	l.rows, l.lineNumbers, l.batchSize = l.rows[:0], l.lineNumbers[:0], 0
	return nil
}

// insertBatchOrFailOnTakenName inserts the rows whose names are free. Unless others are to be skipped, it refuses the first of them.
func (l *bulkLoader) insertBatchOrFailOnTakenName(ctx context.Context, tx Tx, batch *Batch) (insertedCount int, err error) {
	loader, ok := tx.(Loader)
	if !ok {
		return 0, errors.New("the store does not support batches")
	}
	inserted, err := loader.InsertRowsWithFreeNames(ctx, batch)
	if err != nil || l.skipExisting || inserted == len(batch.Rows) {
		return inserted, err
	}
	first, err := loader.FindFirstNotInserted(ctx, batch)
	if err != nil {
		return 0, err
	}
	return 0, addLineNumber(l.lineNumbers[first], newNameTakenError(l.kind, batch.Rows[first].Name))
}

// checkSpecsAgainstSchema refuses the first row whose spec violates the schema of the kind.
func (l *bulkLoader) checkSpecsAgainstSchema(ctx context.Context, tx Tx) error {
	schema, err := l.service.schemas.getCompiledSchema(ctx, tx, l.kind.name)
	if err != nil || schema == nil {
		return err
	}
	for i := range l.rows {
		if violations := schema.ValidateSpec(l.rows[i].Spec); len(violations) > 0 {
			return addLineNumber(l.lineNumbers[i], rest.NewFieldsError(violations))
		}
	}
	return nil
}

func addLineNumber(number int, err error) error {
	p, ok := errors.AsType[*rest.Error](err)
	if !ok {
		return err
	}
	placed := *p
	placed.Detail = fmt.Sprintf("line %d: %s", number, p.Detail)
	return &placed
}

// addLoadedCounts adds the number of resources created before it to a problem.
func (l *bulkLoader) addLoadedCounts(err error) error {
	p, ok := errors.AsType[*rest.Error](err)
	switch {
	case ok:
	case errors.Is(err, ErrUnavailable):
		p = &rest.Error{Code: rest.CodeUnavailable, Detail: "the fleet API cannot reach its database", RetryAfter: retryAfter, Cause: err}
	case errors.Is(err, ErrStatementTimeout):
		p = newStatementTimeoutError(err)
	default:
		return err
	}
	counted := *p
	counted.Loaded = &l.result
	counted.Detail += fmt.Sprintf("; created before the error: %d", l.result.Created)
	if l.result.Skipped > 0 {
		counted.Detail += fmt.Sprintf(", skipped because they exist: %d", l.result.Skipped)
	}
	return &counted
}
