package clusterworker_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/processtest"
)

// answer is an error answer of the fleet API.
type reportAnswerError struct {
	code  int
	after time.Duration
}

func (a reportAnswerError) Error() string             { return fmt.Sprint("the fleet API answered ", a.code) }
func (a reportAnswerError) StatusCode() int           { return a.code }
func (a reportAnswerError) RetryAfter() time.Duration { return a.after }

// A reporterSide is the environment of a reporter: rows and when they are due, the fleet API and
// the observer.
type reporterSide struct {
	mu      sync.Mutex
	rows    map[string]clusterworker.Row
	due     map[string]time.Time
	queries int
	err     error // of the database
	noteErr error

	reports   []v1.Report
	told      []string // clusters, in the order of the reports
	at        []time.Time
	refuse    func(id string) error
	ignore    bool
	slow      time.Duration
	inFlight  int
	most      int
	follower  bool // another process leads
	unseen    bool
	outOfDate bool
}

func newReporterSide() *reporterSide {
	return &reporterSide{rows: map[string]clusterworker.Row{}, due: map[string]time.Time{}}
}

func (s *reporterSide) set(how func(*reporterSide)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	how(s)
}

// change changes a row, which makes its report due.
func (s *reporterSide) change(id string, row clusterworker.Row) {
	s.mu.Lock()
	defer s.mu.Unlock()
	row.ClusterID, row.ReportVersion = id, s.rows[id].ReportVersion+1
	s.rows[id], s.due[id] = row, time.Now()
}

func (s *reporterSide) ListDueReports(ctx context.Context, limit int) ([]clusterworker.Row, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queries++
	if s.err != nil || ctx.Err() != nil {
		return nil, errors.Join(s.err, context.Cause(ctx))
	}
	var list []clusterworker.Row
	for id, at := range s.due {
		if !at.After(time.Now()) {
			list = append(list, s.rows[id])
		}
	}
	slices.SortFunc(list, func(a, b clusterworker.Row) int {
		return cmp.Or(s.due[a.ClusterID].Compare(s.due[b.ClusterID]), cmp.Compare(a.ClusterID, b.ClusterID))
	})
	return list[:min(limit, len(list))], nil
}

func (s *reporterSide) RecordReports(ctx context.Context, reports []clusterworker.Reported) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queries++
	if s.noteErr != nil || ctx.Err() != nil {
		return errors.Join(s.noteErr, context.Cause(ctx))
	}
	for _, r := range reports {
		if row, ok := s.rows[r.ClusterID]; ok && row.ReportVersion == r.Version {
			s.due[r.ClusterID] = time.Now().Add(r.Next)
		}
	}
	return nil
}

func (s *reporterSide) Report(ctx context.Context, collection, id string, r v1.Report) (bool, error) {
	s.mu.Lock()
	s.inFlight++
	s.most = max(s.most, s.inFlight)
	slow := s.slow
	s.mu.Unlock()
	defer s.set(func(s *reporterSide) { s.inFlight-- })
	if slow > 0 {
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-time.After(slow): //nolint:forbidigo // a fake in a bubble of synctest
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, cluster := s.rows[id]; cluster != (collection == "clusters") {
		return false, fmt.Errorf("%q is not in the collection %s", id, collection)
	}
	s.told, s.at = append(s.told, id), append(s.at, time.Now())
	if s.refuse != nil {
		if err := s.refuse(id); err != nil {
			return false, err
		}
	}
	if s.ignore {
		return false, nil
	}
	s.reports = append(s.reports, r)
	return true, nil
}

func (s *reporterSide) IsLeader() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.follower
}

func (s *reporterSide) IsStatusCurrent(*clusterworker.Row) (current, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.outOfDate && !s.unseen, !s.unseen
}

// asked returns the number of queries, and stored the number of reports.
func (s *reporterSide) asked() (n int) {
	s.set(func(s *reporterSide) { n = s.queries })
	return n
}

func (s *reporterSide) stored() (n int) {
	s.set(func(s *reporterSide) { n = len(s.reports) })
	return n
}

// tries returns how many times a cluster was reported, successfully or not.
func (s *reporterSide) tries(id string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.told {
		if t == id {
			n++
		}
	}
	return n
}

// last returns the last report.
func (s *reporterSide) last() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.reports) == 0 {
		return ""
	}
	return said(s.reports[len(s.reports)-1])
}

// start starts a reporter. It is stopped at the end of the test.
func (s *reporterSide) start(t *testing.T) (*clusterworker.Reporter, *processtest.Buffer) {
	t.Helper()
	b, logs, _ := s.startUntil(t)
	return b, logs
}

func (s *reporterSide) startUntil(t *testing.T) (b *clusterworker.Reporter, logs *processtest.Buffer, stop func()) {
	t.Helper()
	logs = &processtest.Buffer{}
	b, err := clusterworker.NewReporter(clusterworker.ReporterConfig{}, clusterworker.ReporterDeps{
		Store: s, Fleet: s, Observer: s, Registerer: prometheus.NewPedanticRegistry(), Log: slog.New(slog.NewTextHandler(logs, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run gave %v", err)
		}
	})
	t.Cleanup(stop)
	return b, logs, stop
}

func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func wantReport[T any](t *testing.T, reason string, got, want T) {
	t.Helper()
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", reason, diff)
	}
}
