package audit_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution/audit"
)

// A fakeStore keeps records in memory, as a store does.
type fakeStore struct {
	mu      sync.Mutex
	kept    map[string]bool // by execution and number
	calls   []int           // how many records each brought
	fail    func(records []audit.Record) error
	hold    chan struct{} // a call waits for it
	looked  int
	sick    error
	found   audit.Maintenance
	keepFor time.Duration
	open    []audit.Record // what all records of an execution say alike
	pages   []audit.Page
}

func newStore() *fakeStore { return &fakeStore{kept: map[string]bool{}} }

func (s *fakeStore) Append(ctx context.Context, records []audit.Record) error {
	if s.hold != nil {
		select {
		case <-s.hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, len(records))
	if s.fail != nil {
		if err := s.fail(records); err != nil {
			return err
		}
	}
	for _, r := range records {
		s.kept[fmt.Sprintf("%s/%d", r.ExecutionUID, r.Seq)] = true
	}
	return nil
}

func (s *fakeStore) Maintain(_ context.Context, retention time.Duration) (audit.Maintenance, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looked++
	s.keepFor = retention
	return s.found, s.sick
}

func newAuditor(t *testing.T, s audit.Store) (*audit.Auditor, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewRegistry()
	a, err := audit.New(s, audit.Config{Cluster: "local"}, reg, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	return a, reg
}

// numbered returns an ended execution with a unique UID.
func numbered(i int) *v1alpha1.KubernetesExecution {
	ke := asked("scale_deployment", `{}`)
	ke.UID, ke.Name = types.UID(fmt.Sprintf("uid-%d", i)), fmt.Sprintf("ke-%d", i)
	return ke
}

func wantMetric(t *testing.T, reg *prometheus.Registry, name, want string) {
	t.Helper()
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "kubernetesexecution_audit_"+name); err != nil {
		t.Error(err)
	}
}

func TestDoneIsEndedAndRecorded(t *testing.T) {
	s := newStore()
	a, _ := newAuditor(t, s)
	ke := newExecution()
	for _, step := range []struct {
		reason string
		change func()
		fail   error
		done   bool
	}{
		{"it has not ended", func() {}, nil, false},
		{"it has ended, and that could not be recorded", func() { *ke = *numbered(1) }, audit.ErrUnavailable, false},
		{"it has ended, and that was recorded", func() {}, nil, true},
		{"and again", func() {}, nil, true},
	} {
		step.change()
		s.fail = func([]audit.Record) error { return step.fail }
		done, err := a.Sync(t.Context(), ke)
		if done != step.done || !errors.Is(err, step.fail) {
			t.Errorf("%s: done %v, %v", step.reason, done, err)
		}
	}
}

func TestAStoreThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		a, reg := newAuditor(t, s)
		s.fail = func([]audit.Record) error { return fmt.Errorf("connect: %w", audit.ErrUnavailable) }
		for range 3 {
			if _, err := a.Sync(t.Context(), numbered(1)); !errors.Is(err, audit.ErrUnavailable) || !strings.Contains(err.Error(), `"kubernaut-executor/ke-1"`) {
				t.Errorf("%v", err)
			}
			time.Sleep(10 * time.Second)
		}
		wantMetric(t, reg, "storage_failures_total", `
			# HELP kubernetesexecution_audit_storage_failures_total Total number of failed writes to the audit database, by error_type: unavailable, timeout or refused (by the database). The controller retries failed writes.
			# TYPE kubernetesexecution_audit_storage_failures_total counter
			kubernetesexecution_audit_storage_failures_total{error_type="refused"} 0
			kubernetesexecution_audit_storage_failures_total{error_type="timeout"} 0
			kubernetesexecution_audit_storage_failures_total{error_type="unavailable"} 3
		`)
		pending := func(records, lag int) {
			t.Helper()
			wantMetric(t, reg, "pending_records", fmt.Sprintf(`
				# HELP kubernetesexecution_audit_pending_records Number of audit records that are currently waiting to be written to the audit database.
				# TYPE kubernetesexecution_audit_pending_records gauge
				kubernetesexecution_audit_pending_records %d
			`, records))
			wantMetric(t, reg, "lag_seconds", fmt.Sprintf(`
				# HELP kubernetesexecution_audit_lag_seconds Longest time that any audit record has been waiting to be written to the audit database, in seconds; 0 if no record is waiting.
				# TYPE kubernetesexecution_audit_lag_seconds gauge
				kubernetesexecution_audit_lag_seconds %d
			`, lag))
		}
		pending(7, 30)
		s.fail = nil
		if done, err := a.Sync(t.Context(), numbered(1)); !done || err != nil {
			t.Errorf("%v, %v", done, err)
		}
		pending(0, 0)
		if len(s.kept) != 7 {
			t.Errorf("kept %v", s.kept)
		}
		// One that nobody tries any more is another's, or gone.
		s.fail = func([]audit.Record) error { return audit.ErrUnavailable }
		_, _ = a.Sync(t.Context(), numbered(2))
		time.Sleep(2 * time.Minute)
		pending(7, 120)
		time.Sleep(time.Second)
		pending(0, 0)
	})
}

// A store that does not answer is given up, and it is not the caller's context
// that ends the call for others.
func TestAStoreThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.hold = make(chan struct{})
		a, reg := newAuditor(t, s)
		begun := time.Now()
		if _, err := a.Sync(t.Context(), numbered(1)); err == nil || !strings.Contains(err.Error(), "did not answer within 10s") {
			t.Errorf("%v", err)
		}
		if took := time.Since(begun); took != 10*time.Second {
			t.Errorf("took %s", took)
		}
		wantMetric(t, reg, "storage_failures_total", `
			# HELP kubernetesexecution_audit_storage_failures_total Total number of failed writes to the audit database, by error_type: unavailable, timeout or refused (by the database). The controller retries failed writes.
			# TYPE kubernetesexecution_audit_storage_failures_total counter
			kubernetesexecution_audit_storage_failures_total{error_type="refused"} 0
			kubernetesexecution_audit_storage_failures_total{error_type="timeout"} 1
			kubernetesexecution_audit_storage_failures_total{error_type="unavailable"} 0
		`)
	})
}

// TestWhatComesAtOnceIsOneCall verifies that all records arriving during a call go with the next
// one.
func TestWhatComesAtOnceIsOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.hold = make(chan struct{})
		a, _ := newAuditor(t, s)
		var wg sync.WaitGroup
		sync1 := func(i int) {
			wg.Go(func() {
				if done, err := a.Sync(t.Context(), numbered(i)); !done || err != nil {
					t.Errorf("%d: %v, %v", i, done, err)
				}
			})
		}
		sync1(0)
		synctest.Wait()
		for i := range 100 {
			sync1(i + 1)
		}
		synctest.Wait()
		close(s.hold)
		wg.Wait()
		if diff := cmp.Diff([]int{7, 700}, s.calls); diff != "" || len(s.kept) != 707 {
			t.Errorf("%d are kept (-want +got):\n%s", len(s.kept), diff)
		}
	})
}

// TestOneOfManyGivesUp verifies that a cancelled caller stops waiting without affecting the others.
func TestOneOfManyGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.hold = make(chan struct{})
		a, _ := newAuditor(t, s)
		impatient, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := a.Sync(impatient, numbered(0)); err != nil { // it is at it, for others as well
				t.Error(err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if _, err := a.Sync(impatient, numbered(1)); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		wg.Go(func() {
			if _, err := a.Sync(t.Context(), numbered(2)); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		cancel()
		synctest.Wait()
		close(s.hold)
		wg.Wait()
		if len(s.kept) != 21 {
			t.Errorf("kept %v", s.kept)
		}
	})
}

// One that the store refuses does not keep others from being recorded.
func TestOneThatIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.hold = make(chan struct{})
		a, _ := newAuditor(t, s)
		refused := errors.New("value out of range")
		s.fail = func(records []audit.Record) error {
			if slices.ContainsFunc(records, func(r audit.Record) bool { return r.ExecutionUID == "uid-3" }) {
				return refused
			}
			return nil
		}
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				_, err := a.Sync(t.Context(), numbered(i))
				if (i == 3) != errors.Is(err, refused) {
					t.Errorf("%d: %v", i, err)
				}
			})
		}
		synctest.Wait()
		close(s.hold)
		wg.Wait()
		if len(s.kept) != 5*7 {
			t.Errorf("kept %v", s.kept)
		}
	})
}

// A sharedLog is read while it is written.
type sharedLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *sharedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// take returns and clears the text written so far.
func (l *sharedLog) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.text.Reset()
	return l.text.String()
}

func TestTheStoreIsLookedAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log sharedLog
		s := newStore()
		reg := prometheus.NewRegistry()
		a, err := audit.New(s, audit.Config{}, reg, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		answer := func(m audit.Maintenance, err error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.found, s.sick = m, err
		}
		looked := func(want int, told string) {
			t.Helper()
			synctest.Wait()
			s.mu.Lock()
			defer s.mu.Unlock()
			if said := log.take(); s.looked != want || strings.Count(said, told) != 1 {
				t.Errorf("looked after %d times, want %d; %q is not told once:\n%s", s.looked, want, told, said)
			}
			if s.keepFor != audit.DefaultRetention {
				t.Errorf("kept for %s", s.keepFor)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		answer(audit.Maintenance{}, audit.ErrUnavailable)
		go func() { ended <- a.RunMaintenance(ctx) }()
		looked(1, "audit maintenance failed")
		end := audit.Position{Position: 7, Hash: []byte{0xab}}
		answer(audit.Maintenance{End: end}, nil)
		time.Sleep(time.Minute)
		looked(2, "audit maintenance recovered")
		time.Sleep(time.Hour)
		looked(3, "end=7:ab")
		answer(audit.Maintenance{End: end, Broken: &audit.Break{Kind: audit.Changed, Position: 3, Message: "its hash"}}, nil)
		time.Sleep(time.Hour)
		looked(4, "position=3 kind=changed")
		wantMetric(t, reg, "broken", `
			# HELP kubernetesexecution_audit_verification_failed 1 if the last verification found changed, removed or inserted records in the audit database, 0 otherwise.
			# TYPE kubernetesexecution_audit_verification_failed gauge
			kubernetesexecution_audit_verification_failed 1
		`)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestPositionsAreRead(t *testing.T) {
	hash := strings.Repeat("0f", 32)
	p, err := audit.ParsePosition("17:" + hash)
	if err != nil || p.String() != "17:"+hash {
		t.Errorf("%v, %v", p, err)
	}
	for _, text := range []string{"", "17", "17:", "x:" + hash, "17:0f", "17:" + hash + "0", "17:" + hash[:63] + "g", "-1:" + hash} {
		if p, err := audit.ParsePosition(text); err == nil {
			t.Errorf("%q is read as %v", text, p)
		}
	}
}
