package fleetclient

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

// patience is how long a load waits for a server that takes nothing more and
// says nothing either. A batch may wait for the database's own bounds.
const patience = time.Minute

var (
	// errStuck is the cause of a load that a server stopped taking.
	errStuck = fmt.Errorf("the server accepted no data for %s", patience)
	// errLoadOver is what is left to read of the lines after the answer.
	errLoadOver = errors.New("the load has ended")
)

// A LoadOption changes how Load works.
type LoadOption func(url.Values)

// SkipExisting leaves resources alone whose names are in use, so that a load
// that was cut short can be sent again. Otherwise the first of them ends it.
func SkipExisting() LoadOption {
	return func(q url.Values) { q.Set("if_exists", string(v1.IfExistsSkip)) }
}

// Load creates a resource of every line, each the JSON of a v1.CreateRequest,
// while it reads them. There is no bound on how many there are nor on how long
// that takes, as long as the server goes on taking them.
//
// The server creates batch by batch. With an *Error, created and skipped are
// what it had done before the line that it refused, and stays; with any other
// error that is not known. Lines are not read after Load has returned, but for
// a Read that was under way.
func (c *Client) Load(ctx context.Context, collection string, lines io.Reader, options ...LoadOption) (created, skipped int64, err error) {
	r := request{method: http.MethodPost, path: collection + "/bulk", query: url.Values{}, header: map[string]string{
		"Content-Type": v1.ContentTypeNDJSON,
		// A server that refuses the token does so before the lines are gone.
		"Expect": "100-continue",
	}}
	for _, option := range options {
		option(r.query)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	src := newSupply(lines, cancel)
	defer src.endBody()
	r.stream = src

	resp, err := c.sendWithToken(ctx, r)
	if err != nil {
		return 0, 0, c.unreachable(ctx, r, err)
	}
	defer closeStream(resp, cancel)
	body, _, err := c.readBody(ctx, r, resp, nil)
	if err != nil {
		if refusal, ok := errors.AsType[*Error](err); ok && refusal.Problem.Loaded != nil {
			return refusal.Problem.Loaded.Created, refusal.Problem.Loaded.Skipped, err
		}
		return 0, 0, err
	}
	var out v1.LoadResult
	err = decodeBody(r, body, &out)
	return out.Created, out.Skipped, err
}

// A supply is the body of a load. It watches the server between one Read and
// the next: the time within is the caller's own.
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

func (s *supply) endBody() {
	s.mu.Lock()
	s.src = nil
	s.mu.Unlock()
	s.timer.Stop()
}
