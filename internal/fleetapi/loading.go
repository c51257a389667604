package fleetapi

import (
	"bufio"
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

	// stalled is the maximum time a client may take to send one line.
	stalled = 30 * time.Second
	// taken is the maximum time a client may take to receive the answer.
	taken = time.Minute
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

// newBulkLoadHandler returns the handler that creates a resource from each line of the body, batch by batch. A created batch
// stays, even if a later one fails.
func (rs resourceRoutes) newBulkLoadHandler(k *kind) handler {
	return func(w http.ResponseWriter, r *http.Request, who auth.Principal) error {
		l := bulkLoader{rs: &rs.api.resourceService, kind: k}
		var err error
		if l.by, err = authorizeVerb(who, v1.VerbCreate); err != nil {
			return err
		}
		if l.parent, err = parseParentIDFromPath(r, k); err != nil {
			return err
		}
		if l.skip, err = parseIfExistsParameter(r.URL.Query()); err != nil {
			return err
		}
		if e := rest.CheckContentType(r, v1.ContentTypeNDJSON); e != nil {
			return e
		}
		began := time.Now()
		lines := newLineReader(w, r.Body, rs.api.maxBody)
		defer lines.setFinalDeadlines()
		err = l.loadAllLines(r.Context(), lines)
		rs.api.log.InfoContext(r.Context(), "bulk load finished", "kind", k.name, "subject", who.Actor(),
			"created", l.result.Created, "skipped", l.result.Skipped, "took", time.Since(began), "complete", err == nil)
		if err != nil {
			return l.addLoadedCounts(err)
		}
		return writeJSONValue(w, http.StatusOK, l.result)
	}
}

func parseIfExistsParameter(query url.Values) (skipExisting bool, err error) {
	if err := checkQueryParameters(query, "if_exists"); err != nil {
		return false, err
	}
	switch e := v1.IfExists(query.Get("if_exists")); {
	case !query.Has("if_exists") || e == v1.IfExistsFail:
		return false, nil
	case e == v1.IfExistsSkip:
		return true, nil
	}
	return false, rest.NewQueryError("if_exists", "enum", query.Get("if_exists"), "must be %s or %s", v1.IfExistsFail, v1.IfExistsSkip)
}

// A bulkLoader is a bulk load in progress.
type bulkLoader struct {
	rs     *resourceService
	kind   *kind
	by     author
	parent string
	skip   bool

	rows  []BatchRow
	lines []int // the line number of each row in the body
	size  int   // of the rows in bytes

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
		if len(l.rows) < batchRows && l.size < batchBytes {
			continue
		}
		lines.clearReadDeadline()
		if err := l.createBatchedResources(ctx); err != nil {
			return err
		}
	}
}

// validateAndAddLine validates a line like the body of a request that creates one resource.
func (l *bulkLoader) validateAndAddLine(line []byte, number int) error {
	var req v1.CreateRequest
	if e := rest.DecodeStrictJSON("the line", line, &req); e != nil {
		return e
	}
	var d resourceDraft
	if err := d.validateAndCopyRequest(l.kind, &req); err != nil {
		return err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("make an id: %w", err)
	}
	l.rows = append(l.rows, BatchRow{ID: id.String(), Content: d.Content})
	l.lines = append(l.lines, number)
	l.size += len(line)
	return nil
}

// createBatchedResources creates the collected resources in one transaction.
func (l *bulkLoader) createBatchedResources(ctx context.Context) error {
	if len(l.rows) == 0 {
		return nil
	}
	guarded, err := l.rs.deletionWaitsForShoot(ctx, l.kind)
	if err != nil {
		return err
	}
	var created int
	err = l.rs.store.RunInTx(ctx, l.by.scope, func(ctx context.Context, tx Tx, now time.Time) error {
		into, ok := tx.(Loader)
		if !ok {
			return errors.New("the store does not support batches")
		}
		common := Locked{Now: now, Shoot: ShootState{Guarded: guarded}, Record: Record{ParentID: l.parent}}
		err := l.rs.initRowAndLockParent(ctx, tx, l.by, l.kind, &common)
		if err != nil {
			return err
		}
		if err := l.checkSpecsAgainstSchema(ctx, tx); err != nil {
			return err
		}
		batch := Batch{Common: common.Record, Rows: l.rows}
		if created, err = into.InsertRowsWithFreeNames(ctx, &batch); err != nil || l.skip || created == len(l.rows) {
			return err
		}
		first, err := into.FindFirstNotInserted(ctx, &batch)
		if err != nil {
			return err
		}
		return addLineNumber(l.lines[first], rest.NewError(rest.CodeNameTaken, "a %s named %q already exists", l.kind.name, l.rows[first].Name))
	})
	if err != nil {
		return err
	}
	l.result.Created += int64(created)
	l.result.Skipped += int64(len(l.rows) - created)
	l.rows, l.lines, l.size = l.rows[:0], l.lines[:0], 0
	return nil
}

// checkSpecsAgainstSchema refuses the first row whose spec violates the schema of the kind.
func (l *bulkLoader) checkSpecsAgainstSchema(ctx context.Context, tx Tx) error {
	schema, err := l.rs.schemas.getCompiledSchema(ctx, tx, l.kind.name)
	if err != nil || schema == nil {
		return err
	}
	for i := range l.rows {
		if violations := schema.ValidateSpec(l.rows[i].Spec); len(violations) > 0 {
			return addLineNumber(l.lines[i], rest.NewFieldsError(violations))
		}
	}
	return nil
}

// addLineNumber adds the line number to a problem.
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

// A lineReader reads a body of any length line by line. Each line has its own read deadline, so a
// long load may take as long as it needs, but a stalled client is cut off.
type lineReader struct {
	src     *bufio.Reader
	control *http.ResponseController
	limit   int64
	line    []byte
	number  int // of the last line read, from 1
	waiting int // the number of the line whose deadline is running
	ended   bool
}

func newLineReader(w http.ResponseWriter, body io.Reader, maxLineBytes int64) *lineReader {
	l := &lineReader{control: http.NewResponseController(w), limit: maxLineBytes}
	l.src = bufio.NewReaderSize(deadlineReader{body, l}, 64<<10)
	// The server's deadline for a request is meant for requests of bounded size, and over HTTP/2 it
	// ends the request.
	_ = l.control.SetWriteDeadline(time.Time{}) // every connection of a server has deadlines
	return l
}

// deadlineReader reads under the deadline of the current line.
type deadlineReader struct {
	src   io.Reader
	lines *lineReader
}

// Read implements io.Reader.
func (t deadlineReader) Read(p []byte) (int, error) {
	if l := t.lines; l.waiting != l.number+1 {
		l.waiting = l.number + 1
		_ = l.control.SetReadDeadline(time.Now().Add(stalled))
	}
	return t.src.Read(p)
}

// readLine returns the next line, which is valid until the following call. The last line may lack a
// newline.
func (l *lineReader) readLine() (line []byte, err error) {
	l.line = l.line[:0]
	for {
		part, err := l.src.ReadSlice('\n')
		l.line = append(l.line, part...)
		switch {
		case int64(len(bytes.TrimRight(l.line, "\r\n"))) > l.limit:
			l.number++
			return nil, rest.NewError(rest.CodeBodyTooLarge, "the line is larger than %d bytes", l.limit)
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF):
			l.ended = true
			if len(l.line) == 0 {
				return nil, io.EOF
			}
		case err != nil:
			l.number++
			return nil, rest.NewError(rest.CodeInvalidBody, "the fleet API could not read the whole line; send the request again")
		}
		l.number++
		return l.line, nil
	}
}

// clearReadDeadline removes the deadline while nothing is read: the client does not pay for the
// server's work.
func (l *lineReader) clearReadDeadline() {
	l.waiting = 0
	_ = l.control.SetReadDeadline(time.Time{})
}

// setFinalDeadlines leaves time for an answer, and none for any rest of the body.
func (l *lineReader) setFinalDeadlines() {
	now := time.Now()
	_ = l.control.SetWriteDeadline(now.Add(taken))
	if !l.ended {
		_ = l.control.SetReadDeadline(now.Add(time.Second))
		return
	}
	_ = l.control.SetReadDeadline(time.Time{})
}
