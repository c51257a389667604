package broker_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/broker"
)

func TestSendTellsWhetherTheEventMayHaveLeft(t *testing.T) {
	refused := errors.New("refused")
	cases := map[string]struct {
		reason string
		do     func(s *broker.PendingSend, closed chan struct{})
		want   error
		not    error
	}{
		"Confirmed":       {"an outcome is passed on", func(s *broker.PendingSend, _ chan struct{}) { s.BeginUnlessAbandoned(); s.ReportOutcome(nil) }, nil, nil},
		"Refused":         {"also a bad one", func(s *broker.PendingSend, _ chan struct{}) { s.BeginUnlessAbandoned(); s.ReportOutcome(refused) }, refused, nil},
		"Queued":          {"nobody took it before the context ended", func(*broker.PendingSend, chan struct{}) {}, context.DeadlineExceeded, broker.ErrUnknownOutcome},
		"Sent":            {"somebody took it and said no more", func(s *broker.PendingSend, _ chan struct{}) { s.BeginUnlessAbandoned() }, broker.ErrUnknownOutcome, nil},
		"ClosedQueued":    {"nobody takes it any more", func(_ *broker.PendingSend, c chan struct{}) { close(c) }, broker.ErrNotReady, broker.ErrUnknownOutcome},
		"ClosedConfirmed": {"who took it finishes it", func(s *broker.PendingSend, c chan struct{}) { s.BeginUnlessAbandoned(); close(c); s.ReportOutcome(nil) }, nil, nil},
		"ClosedSent":      {"or never does", func(s *broker.PendingSend, c chan struct{}) { s.BeginUnlessAbandoned(); close(c) }, broker.ErrUnknownOutcome, nil},
		"FirstCounts": {"the first outcome is the outcome", func(s *broker.PendingSend, _ chan struct{}) {
			s.BeginUnlessAbandoned()
			s.ReportOutcome(nil)
			s.ReportOutcome(refused)
		}, nil, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				s, closed := broker.NewPendingSend(), make(chan struct{})
				tc.do(s, closed)
				err := s.AwaitOutcomeOrAbandon(ctx, closed)
				if !errors.Is(err, tc.want) || tc.not != nil && errors.Is(err, tc.not) {
					t.Errorf("%s: Wait() = %v, want %v and not %v", tc.reason, err, tc.want, tc.not)
				}
			})
		})
	}
}

// TestSendGivenUpIsNotBegun checks that an abandoned send never begins.
func TestSendGivenUpIsNotBegun(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	never := errors.New("never mind")
	cancel(never)
	s := broker.NewPendingSend()
	if err := s.AwaitOutcomeOrAbandon(ctx, nil); !errors.Is(err, never) {
		t.Errorf("Wait() = %v, want the context's cause", err)
	}
	if s.BeginUnlessAbandoned() {
		t.Error("Begin() = true after the caller gave up, want false")
	}
}

func TestUnroutableIsRefused(t *testing.T) {
	if !errors.Is(broker.ErrUnroutable, broker.ErrRefused) {
		t.Error("ErrUnroutable is not a kind of ErrRefused")
	}
}

func TestStatus(t *testing.T) {
	var s broker.Status
	if err := s.NotReadyReason(); err == nil {
		t.Error("Err() of a broker that was not started = nil, want a reason")
	}
	s.SetNotReadyReason(nil)
	if err := s.NotReadyReason(); err != nil {
		t.Errorf("Err() = %v, want nil", err)
	}
	reason := errors.New("blocked")
	s.SetNotReadyReason(reason)
	if err := s.NotReadyReason(); !errors.Is(err, reason) {
		t.Errorf("Err() = %v, want %v", err, reason)
	}
}

func TestRedelivery(t *testing.T) {
	asks := askingError(3 * time.Second)
	cases := map[string]struct {
		reason string
		err    error
		delay  time.Duration
		dead   bool
	}{
		"Plain":     {"the broker's own delay", errors.New("not yet"), time.Second, false},
		"Asked":     {"the handler knows better", fmt.Errorf("not yet: %w", asks), 3 * time.Second, false},
		"TooLong":   {"a wrong delay must not stop an event for a week", askingError(7 * 24 * time.Hour), backoff.MaxRetryAfter, false},
		"Permanent": {"no redelivery helps", fmt.Errorf("never: %w", backoff.Permanent(errors.New("never"))), time.Second, true},
	}
	for name, tc := range cases {
		if d := broker.RedeliveryDelay(tc.err, time.Second); d != tc.delay || broker.MustNotRedeliver(tc.err) != tc.dead {
			t.Errorf("%s: %s: delay %s, dead letter %v; want %s, %v", name, tc.reason, d, broker.MustNotRedeliver(tc.err), tc.delay, tc.dead)
		}
	}
}

// An askingError asks for a delay.
type askingError time.Duration

func (e askingError) Error() string             { return "later" }
func (e askingError) RetryAfter() time.Duration { return time.Duration(e) }

func TestWindowDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w broker.PublishWindow
		for range 3 {
			if !w.BeginPublish() {
				t.Fatal("Enter() = false, want true")
			}
		}
		go func() {
			for range 3 {
				time.Sleep(time.Second)
				w.EndPublish()
			}
		}()
		begin := time.Now()
		if err := w.CloseAndWaitEmpty(t.Context()); err != nil {
			t.Errorf("Drain() = %v, want nil", err)
		}
		if took := time.Since(begin); took != 3*time.Second {
			t.Errorf("Drain took %s, want 3s", took)
		}
		if w.BeginPublish() {
			t.Error("Enter() = true after Drain, want false")
		}
		if err := w.CloseAndWaitEmpty(t.Context()); err != nil || w.Len() != 0 {
			t.Errorf("Drain() = %v, Len() = %d, want nil, 0", err, w.Len())
		}
	})
}

func TestWindowDrainIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w broker.PublishWindow
		w.BeginPublish()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.CloseAndWaitEmpty(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "1 events not confirmed") {
			t.Errorf("Drain() = %v, want the deadline and how many were left", err)
		}
	})
}

func TestTLSFiles(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason string
		tls    broker.TLS
		want   string // empty means success
	}{
		"Nothing": {"no files are no fault", broker.TLS{}, ""},
		"NoCA":    {"a file that is not there is named", broker.TLS{CAFile: filepath.Join(dir, "ca.pem")}, "ca.pem"},
		"EmptyCA": {"a file without a certificate is named", broker.TLS{CAFile: empty}, "contains no PEM certificate"},
		"HalfOur": {"certificate and key belong together", broker.TLS{CertFile: empty}, "set both cert_file and key_file"},
		"BadOur":  {"a certificate is checked", broker.TLS{CertFile: empty, KeyFile: empty}, "read client certificate"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got, want := tc.tls.IsEnabled(), name != "Nothing"; got != want {
				t.Errorf("Enabled() = %v, want %v", got, want)
			}
			_, err := tc.tls.LoadClientConfig()
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%s: Client() = %v, want an error with %q", tc.reason, err, tc.want)
			}
		})
	}
}
