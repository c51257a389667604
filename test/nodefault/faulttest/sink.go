package faulttest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
)

// A Sink is an HTTP endpoint that stores change events.
type Sink struct {
	server *httptest.Server

	mu     sync.Mutex
	taken  []changeevent.Payload
	paths  []string
	answer func(context.Context, changeevent.Payload) int // nil means 202
}

// StartSink starts a sink.
func StartSink(tb testing.TB) *Sink {
	tb.Helper()
	s := &Sink{}
	s.server = httptest.NewServer(http.HandlerFunc(s.handleRequest))
	tb.Cleanup(s.server.Close)
	return s
}

// URL returns the endpoint of the sink.
func (s *Sink) URL() string { return s.server.URL + "/changes" }

func (s *Sink) handleRequest(w http.ResponseWriter, r *http.Request) {
	var p changeevent.Payload
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	answer := s.answer
	s.mu.Unlock()
	code := http.StatusAccepted
	if answer != nil {
		code = answer(r.Context(), p)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if code == http.StatusAccepted {
		s.taken, s.paths = append(s.taken, p), append(s.paths, r.URL.Path)
	}
	w.WriteHeader(code)
}

// Answer sets the function that returns the status of each response. Nil means that all
// events are accepted. The context is that of the request.
func (s *Sink) Answer(by func(context.Context, changeevent.Payload) int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = by
}

// ReceivedEvents returns the accepted events about a node in order of arrival. With distinct, repeated
// events are omitted.
func (s *Sink) ReceivedEvents(node string, distinct bool) []changeevent.Payload {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []changeevent.Payload
	seen := map[string]bool{}
	for _, p := range s.taken {
		if p.Node == node && (!distinct || !seen[p.ID]) {
			all = append(all, p)
			seen[p.ID] = true
		}
	}
	return all
}

// AwaitActions waits until the actions of the accepted events about a node are as wanted, in
// this order and each once.
func (s *Sink) AwaitActions(tb testing.TB, node, want string) {
	tb.Helper()
	kubebedtest.Eventually(tb, func(context.Context) error {
		if got := s.JoinReceivedActions(node); got != want {
			return fmt.Errorf("told of node %q: %s; want %s", node, got, want)
		}
		return nil
	})
}

// JoinReceivedActions returns the actions of the accepted events about a node, each once and
// separated by spaces.
func (s *Sink) JoinReceivedActions(node string) string {
	var actions []string
	for _, p := range s.ReceivedEvents(node, true) {
		actions = append(actions, p.Action)
	}
	return strings.Join(actions, " ")
}
