package simulation

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/selector"
)

// Features holds the features of a version of the fleet API. The oldest has none of them, and only
// pages by number.
type Features struct {
	Keyset bool // limit and continue
	ETag   bool // If-None-Match
	Cursor bool // changed_since, and the ids parameter
	Watch  bool // watch=true
	Most   int  // resources on a page
}

// A ServerConfig configures the responses of the API.
type ServerConfig struct {
	Features Features
	Latency  time.Duration // maximum latency of a response
	Schedule *Schedule
	Dice     Dice

	// Skip omits a resource from every list. It is a planted fault.
	Skip string
}

// A Server is a fleet API that listens on a network.
type Server struct {
	cfg     ServerConfig
	fleet   *Fleet
	history *History
	net     *Network
	http    *http.Server

	mu      sync.Mutex
	streams int
}

// NewServer returns a server for a fleet. Serve runs it.
func NewServer(cfg ServerConfig, f *Fleet, h *History, n *Network) *Server {
	s := &Server{cfg: cfg, fleet: f, history: h, net: n}
	//nolint:gosec // no stranger comes by this network
	s.http = &http.Server{Handler: s, ErrorLog: log.New(io.Discard, "", 0)}
	return s
}

// Serve serves until Close.
func (s *Server) Serve() { _ = s.http.Serve(s.net) }

// Close closes the server and all connections.
func (s *Server) Close() { _ = s.http.Close() }

// currentFeatures returns the current features.
func (s *Server) currentFeatures() Features {
	if f, ok := s.cfg.Schedule.DrawFault(s.cfg.Dice.For("withdrawn"), Withdrawn); ok {
		return f.Features
	}
	return s.cfg.Features
}

// A request is a request in progress.
type request struct {
	w        http.ResponseWriter
	r        *http.Request
	features Features
	selector selector.Selector
	dice     *rand.Rand
	begin    time.Time
}

// ServeHTTP serves a request, or applies a fault.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := &request{
		w: w, r: r, features: s.currentFeatures(), begin: time.Now(),
		dice: s.cfg.Dice.For("request", r.URL.RequestURI(), time.Since(s.cfg.Schedule.Begin)),
	}
	path, ok := strings.CutPrefix(r.URL.Path, v1.BasePath+"/"+v1.CollectionClusters)
	s.history.Note("", "GET …%s?%.90s", path, r.URL.RawQuery)
	var err error
	if q.selector, err = selector.Parse(r.URL.Query().Get("labels")); err != nil || !ok {
		s.sendProblem(q, http.StatusBadRequest, "bad_request")
		return
	}
	if err := backoff.Sleep(r.Context(), Between(q.dice, s.cfg.Latency/4, s.cfg.Latency)); err != nil {
		return
	}
	kinds := []Kind{APIError, APIBusy, APISlow, APIReset, APIGarbage}
	if params := r.URL.Query(); params.Has("continue") || params.Has("changed_since") {
		kinds = append(kinds, APIGone) // only a position can be gone
	}
	fault, struck := s.cfg.Schedule.DrawFault(q.dice, kinds...)
	if struck && s.applyFault(r.Context(), q, fault) {
		return
	}
	switch params := r.URL.Query(); {
	case path != "":
		s.serveResource(q, strings.TrimPrefix(path, "/"))
	case q.features.Watch && params.Get("watch") == "true":
		s.serveWatch(r.Context(), q)
	case q.features.Cursor && params.Has("ids"):
		s.serveByIDs(q, strings.Split(params.Get("ids"), ","))
	case q.features.Cursor && params.Has("changed_since"):
		s.serveChanges(q)
	default:
		s.serveList(q)
	}
}

// applyFault applies a fault to a request, and reports whether it replaces the response.
func (s *Server) applyFault(ctx context.Context, q *request, f Fault) (answered bool) {
	over := time.Now()
	defer func() { s.history.RecordStrike(f.Kind.String(), q.begin, over) }()
	switch f.Kind {
	case APIError:
		s.sendProblem(q, OneOf(q.dice, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable), "internal")
	case APIBusy:
		wait := time.Duration(1+q.dice.IntN(8)) * time.Second
		over = over.Add(wait)
		q.w.Header().Set("Retry-After", strconv.Itoa(int(wait/time.Second)))
		s.sendProblem(q, http.StatusTooManyRequests, "too_many_requests")
	case APIGone:
		s.sendProblem(q, http.StatusGone, OneOf(q.dice, "cursor_expired", "gone"))
	case APISlow:
		_ = backoff.Sleep(ctx, Between(q.dice, 0, 5*time.Second))
		over = time.Now()
		return ctx.Err() != nil
	case APIReset, APIGarbage:
		s.sendGarbage(q, f.Kind)
	case APIDown, StreamCut, StreamDead, StreamEnd, CursorGone, Withdrawn,
		BrokerLosesConfirm, BrokerRefuses, BrokerBlocks, BrokerAway, NumKinds:
	}
	return true
}

// sendGarbage sends a truncated list, or no list at all.
func (s *Server) sendGarbage(q *request, kind Kind) {
	items, _, _ := s.fleet.pageAfter(q.selector, "", 5)
	body, _ := json.Marshal(v1.List{Items: items, Size: len(items)})
	body = body[:q.dice.IntN(len(body))]
	if kind == APIGarbage {
		if Chance(q.dice, 0.3) {
			body = []byte(`{"items":[{"id":` + string(body))
		}
		q.sendBody(body)
		return
	}
	q.w.Header().Set("Content-Type", "application/json")
	q.w.Header().Set("Content-Length", strconv.Itoa(len(body)+100))
	_, _ = q.w.Write(body)
	_ = http.NewResponseController(q.w).Flush()
	panic(http.ErrAbortHandler)
}

// sendBody sends a body.
func (q *request) sendBody(body []byte) {
	q.w.Header().Set("Content-Type", "application/json")
	_, _ = q.w.Write(body)
}

func (s *Server) sendProblem(q *request, status int, code string) {
	body, _ := json.Marshal(v1.Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Code: code})
	s.history.Note("", "answers %d %s", status, code)
	q.w.Header().Set("Content-Type", "application/problem+json")
	q.w.WriteHeader(status)
	_, _ = q.w.Write(body)
}

// serveResource serves one resource.
func (s *Server) serveResource(q *request, id string) {
	r, ok := s.fleet.Get(id)
	if !ok {
		s.sendProblem(q, http.StatusNotFound, "not_found")
		return
	}
	body, err := json.Marshal(r)
	s.sendResult(q, body, err)
}

// serveByIDs serves the existing ones of some resources.
func (s *Server) serveByIDs(q *request, ids []string) {
	if len(ids) > 100 {
		s.sendProblem(q, http.StatusBadRequest, "bad_request")
		return
	}
	items := []v1.Resource{}
	for _, id := range slices.Compact(slices.Sorted(slices.Values(ids))) {
		if r, ok := s.fleet.Get(id); ok {
			items = append(items, r)
		}
	}
	body, err := json.Marshal(v1.List{Items: items, Size: len(items)})
	s.sendResult(q, body, err)
}

// serveList serves a page, by key or by number.
func (s *Server) serveList(q *request) {
	if q.features.ETag {
		epoch, seq := s.fleet.stateTag()
		tag := fmt.Sprintf("%q", fmt.Sprintf("%d.%d.%x", epoch, seq, s.cfg.Dice.For(q.r.URL.RawQuery).Uint32()))
		q.w.Header().Set("ETag", tag)
		if q.r.Header.Get("If-None-Match") == tag {
			q.w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	params := q.r.URL.Query()
	if limit, err := strconv.Atoi(params.Get("limit")); err == nil && limit > 0 && q.features.Keyset {
		after, err := base64.RawURLEncoding.DecodeString(params.Get("continue"))
		if err != nil {
			s.sendProblem(q, http.StatusGone, "continue_expired")
			return
		}
		body, err := s.keysetPage(q, string(after), min(limit, q.features.Most))
		s.sendResult(q, body, err)
		return
	}
	number := func(name string, otherwise int) int {
		if n, err := strconv.Atoi(params.Get(name)); err == nil && n > 0 {
			return n
		}
		return otherwise
	}
	l := v1.List{Page: number("page", 1)}
	var total int64
	l.Items, total = s.fleet.numberedPage(q.selector, l.Page, min(number("size", 20), q.features.Most))
	l.Items = s.hidePlanted(l.Items)
	l.Size, l.Total = len(l.Items), &total
	body, err := json.Marshal(l)
	s.sendResult(q, body, err)
}

// keysetPage writes a page with the fields after its items in the order that the contract requires.
func (s *Server) keysetPage(q *request, after string, limit int) ([]byte, error) {
	items, more, seq := s.fleet.pageAfter(q.selector, after, limit)
	next := ""
	if more {
		next = base64.RawURLEncoding.EncodeToString([]byte(items[len(items)-1].ID))
	}
	items = s.hidePlanted(items)
	raw, err := json.Marshal(items)
	if items == nil {
		raw = []byte("[]")
	}
	body := fmt.Appendf(nil, `{"items":%s,"size":%d`, raw, len(items))
	if q.features.Cursor {
		epoch, _ := s.fleet.stateTag()
		body = fmt.Appendf(body, `,"cursor":%q`, formatCursor(epoch, seq))
	}
	if more {
		body = fmt.Appendf(body, `,"continue":%q`, next)
	}
	return append(body, '}'), err
}

// hidePlanted removes resources that a planted fault hides.
func (s *Server) hidePlanted(items []v1.Resource) []v1.Resource {
	if s.cfg.Skip == "" {
		return items
	}
	return slices.DeleteFunc(items, func(r v1.Resource) bool { return r.ID == s.cfg.Skip })
}

// serveChanges serves the changes since a cursor.
func (s *Server) serveChanges(q *request) {
	params := q.r.URL.Query()
	limit, err := strconv.Atoi(params.Get("limit"))
	if err != nil || limit < 1 {
		limit = 500
	}
	from, err := s.fleet.parseCursor(params.Get("changed_since"))
	var b batch
	if err == nil {
		b, err = s.fleet.changesSince(q.selector, from, min(limit, q.features.Most))
	}
	if err != nil {
		s.refuseCursor(q, err)
		return
	}
	out := v1.Changes{Items: []v1.Resource{}, Removed: []string{}, More: b.more}
	for _, n := range b.news {
		if n.resource != nil {
			out.Items = append(out.Items, *n.resource)
		} else {
			out.Removed = append(out.Removed, n.id)
		}
	}
	epoch, _ := s.fleet.stateTag()
	out.Size, out.Cursor = len(out.Items), formatCursor(epoch, b.seq)
	body, err := json.Marshal(out)
	s.sendResult(q, body, err)
}

// refuseCursor rejects an unusable cursor.
func (s *Server) refuseCursor(q *request, err error) {
	if errors.Is(err, errNoCursor) {
		s.sendProblem(q, http.StatusBadRequest, "bad_request")
		return
	}
	s.history.RecordStrike("cursor too old", q.begin, time.Now())
	s.sendProblem(q, http.StatusGone, "cursor_expired")
}

func (s *Server) sendResult(q *request, body []byte, err error) {
	if err != nil {
		s.history.RecordFault("encode an answer: %v", err)
	}
	q.sendBody(body)
}

// RunFaults applies the scheduled faults of the network and of cursors, until ctx ends.
func (s *Server) RunFaults(ctx context.Context) {
	var play sync.WaitGroup
	for _, f := range s.cfg.Schedule.Faults {
		play.Go(func() { s.runFault(ctx, f) })
	}
	play.Wait()
}

func (s *Server) runFault(ctx context.Context, f Fault) {
	begin := s.cfg.Schedule.Begin.Add(f.From)
	if f.Kind != APIDown && f.Kind != CursorGone && f.Kind != Withdrawn || backoff.Sleep(ctx, time.Until(begin)) != nil {
		return
	}
	switch f.Kind {
	case CursorGone:
		s.history.RecordStrike(f.Kind.String(), begin, time.Now())
		s.fleet.ExpireCursors()
	case APIDown:
		s.net.SetDown(true)
		defer s.net.SetDown(false)
		s.history.RecordStrike(f.Kind.String(), begin, s.cfg.Schedule.Begin.Add(f.To))
		_ = backoff.Sleep(ctx, s.cfg.Schedule.remaining(f))
	case Withdrawn:
		// The servers restart at a rollback, and at its end.
		s.history.RecordStrike(f.Kind.String(), begin, begin)
		s.net.CutConnections()
		if backoff.Sleep(ctx, s.cfg.Schedule.remaining(f)) == nil {
			s.history.RecordStrike("features back", time.Now(), time.Now())
			s.net.CutConnections()
		}
	case APIError, APIBusy, APIGone, APISlow, APIReset, APIGarbage, StreamCut, StreamDead, StreamEnd,
		BrokerLosesConfirm, BrokerRefuses, BrokerBlocks, BrokerAway, NumKinds:
	}
}
