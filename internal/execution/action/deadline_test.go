package action

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestDeadline holds that nothing begins after the end.
func TestDeadline(t *testing.T) {
	s := newStage(t)
	o, p := s.scaled()
	w := &wire{}
	c := connect(t, w)
	result := Execute(t.Context(), c, p, Run{Subject: newSubject("uid"), Deadline: time.Now().Add(-time.Second)})
	wantCode(t, result, CodeDeadline)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	wantCode(t, Execute(cancelled, c, p, Run{Subject: newSubject("uid")}), CodeCancelled)
	if w.reads > 0 || len(w.sent()) > 0 {
		t.Errorf("%d reads, and sent %v", w.reads, w.sent())
	}
	s.wantReplicas(o, 3)
}

// TestCancelledUnderWay has a write end that was under way: its answer counts.
func TestCancelledUnderWay(t *testing.T) {
	s := newStage(t)
	o, p := s.scaled()
	ctx, cancel := context.WithCancel(t.Context())
	w := &wire{before: func(int, *http.Request) *http.Response {
		cancel()
		return nil
	}}
	result := Execute(ctx, connect(t, w), p, Run{Subject: newSubject("uid")})
	wantCode(t, result, CodeOK)
	if !result.Changed {
		t.Error("it says that it changed nothing")
	}
	s.wantReplicas(o, 5)
}

// TestAnswerLost ends an attempt after a write with an unknown outcome. The result must not claim
// that nothing was done.
func TestAnswerLost(t *testing.T) {
	s := newStage(t)
	o, p := s.scaled()
	ctx, cancel := context.WithCancel(t.Context())
	w := &wire{after: func(_ int, r *http.Response) *http.Response {
		cancel()
		_ = r.Body.Close()
		return nil
	}}
	result := Execute(ctx, connect(t, w), p, Run{Subject: newSubject("uid")})
	wantCode(t, result, CodeCancelled)
	if !result.Changed || !strings.Contains(result.Message, "result of the last request is unknown") {
		t.Errorf("result %+v", result)
	}
	s.wantReplicas(o, 5)
	// Of a trial it is known.
	dry := DryRun(ctx, connect(t, w), p, Run{Subject: newSubject("uid")})
	if dry.Changed || strings.Contains(dry.Message, "result of the last request is unknown") {
		t.Errorf("result %+v", dry)
	}
}

// TestDeadlineWhileBusy gives up a request that does not end.
func TestDeadlineWhileBusy(t *testing.T) {
	s := newStage(t)
	_, p := s.scaled()
	w := &wire{before: func(_ int, r *http.Request) *http.Response {
		<-r.Context().Done() // which the deadline ends
		return refusal(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "no")
	}}
	result := Execute(t.Context(), connect(t, w), p, Run{Subject: newSubject("uid"), Deadline: time.Now().Add(2 * time.Second)})
	wantCode(t, result, CodeDeadline)
}
