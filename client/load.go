package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// patience is how long a load waits for a server that neither accepts data nor responds. A batch
// may wait for the database's limits.
const patience = time.Minute

var (
	// errStuck is the cause of a load whose data a server no longer accepted.
	errStuck = fmt.Errorf("the server accepted no data for %s", patience)
	// errLoadOver is the error of reading lines after the response.
	errLoadOver = errors.New("the load has ended")
)

// LoadOptions configures Load.
type LoadOptions struct {
	// SkipExisting skips resources whose names are in use, so that an interrupted load can be sent
	// again. Otherwise the first of them ends the load.
	SkipExisting bool
}

// Load creates a resource for each line while it reads them. Each line is the JSON of a v1.CreateRequest. The number of
// lines and the duration are unlimited, as long as the server continues to accept data.
//
// The server creates resources in batches. With an *Error, the result counts its work
// before the rejected line, which is permanent; with any other error the counts are unknown. Load
// reads no lines after it has returned, except for a Read in progress.
func (c *Collection) Load(ctx context.Context, lines io.Reader, o LoadOptions) (v1.LoadResult, error) {
	r := request{method: http.MethodPost, path: c.path + "/bulk", header: map[string]string{
		"Content-Type": v1.ContentTypeNDJSON,
		// A server that rejects the token does so before the lines are sent.
		"Expect": "100-continue",
	}}
	if o.SkipExisting {
		r.query = url.Values{"if_exists": {string(v1.IfExistsSkip)}}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	src := newSupply(lines, cancel)
	defer src.stopSupply()
	r.stream = src

	resp, err := c.caller.sendAndRetryWithNewToken(ctx, r)
	if err != nil {
		return v1.LoadResult{}, c.caller.wrapTransportError(ctx, r, err)
	}
	defer closeStream(resp, cancel)
	body, _, err := c.caller.readBodyOrError(ctx, r, resp, nil)
	if err != nil {
		if refusal, ok := errors.AsType[*Error](err); ok && refusal.Problem.Loaded != nil {
			return *refusal.Problem.Loaded, err
		}
		return v1.LoadResult{}, err
	}
	var out v1.LoadResult
	err = decodeBody(r, body, &out)
	return out, err
}

// A supply is the body of a load. It checks the progress of the server between two calls of Read;
// the time within Read is the caller's.
type supply struct {
	timer *time.Timer

	mu    sync.Mutex
	src   io.Reader // nil when the load has ended
	begun bool
}

func newSupply(src io.Reader, cancel context.CancelCauseFunc) *supply {
	return &supply{src: src, timer: time.AfterFunc(patience, func() { cancel(errStuck) })}
}

// Read implements io.Reader.
func (s *supply) Read(p []byte) (int, error) {
	s.mu.Lock()
	src := s.src
	s.begun = true
	s.mu.Unlock()
	if src == nil {
		return 0, errLoadOver
	}
	s.timer.Stop()
	defer s.timer.Reset(patience)
	return src.Read(p)
}

// untouched reports whether the lines can be sent again.
func (s *supply) untouched() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.begun
}

func (s *supply) stopSupply() {
	s.mu.Lock()
	s.src = nil
	s.mu.Unlock()
	s.timer.Stop()
}
