package crash

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/test/execution/fleettest"
)

// A sink keeps the change events that it was sent.
type sink struct {
	*httptest.Server

	mu   sync.Mutex
	got  []changeevent.Payload
	down bool // it refuses all
}

func newSink(t *testing.T) *sink {
	t.Helper()
	s := &sink{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		var p changeevent.Payload
		if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
			t.Errorf("the sink was sent no payload: %v", err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.down {
			rw.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		s.got = append(s.got, p)
	}))
	t.Cleanup(s.Close)
	return s
}

// of gives the actions that the sink was sent of an execution, the first time of each.
func (s *sink) of(name string) (actions []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.got {
		if p.Subject == "executions/"+name && !slices.Contains(actions, p.Action) {
			actions = append(actions, p.Action)
		}
	}
	return actions
}

// TestEventsOutliveTheController holds that a sink is sent each change event of an
// execution although the controller is killed right after the write of the status that
// it reports, before it can send anything.
func TestEventsOutliveTheController(t *testing.T) {
	t.Parallel()
	s := newSink(t)
	c := courseOf("job")
	c.args = append(slices.Clone(c.args), "--change-events-cluster-name=test", "--change-events-enabled", "--change-events-endpoint="+s.URL)
	l := newLane(t, c)
	const approved, started, ended = 2, 5, 6 // the writes of its course that store it
	for n, action := range map[int]string{approved: "execution-approved", started: "execution-started", ended: "execution-succeeded"} {
		name := fmt.Sprintf("event-%d", n)
		l.CreateDeploymentAndAwaitObserved(l.targets(), name, 3)
		l.way.arm(name, point{n: n, answered: true}, c.writes, l.Controller().Kill)
		l.ask(name, name)
		l.reaches(name, v1alpha1.PhaseWaitingApproval)
		l.WantCommand(fleettest.Approver, cli.CodeOK, []string{"approve", name, "--yes"})
		l.Until(func() error {
			select {
			case <-l.Controller().Ended():
				return nil
			default:
				return errors.New("the controller lives")
			}
		})
		if got := s.of(name); slices.Contains(got, action) {
			t.Fatalf("the sink was sent %s before the controller died: %q", action, got)
		}
		l.StartController()
		l.reaches(name, v1alpha1.PhaseRollbackReady)
		want := []string{"execution-approved", "execution-started", "execution-succeeded"}
		l.Until(func() error {
			if got := s.of(name); !slices.Equal(got, want) {
				return fmt.Errorf("the sink was sent %q of %s, want %q", got, name, want)
			}
			return nil
		})
		l.WantCommand(fleettest.Requester, cli.CodeOK, []string{"exec", "finalize", name})
		l.until(name, over)
		if left := l.GetExecution(name).Status.PendingChangeEvents; len(left) != 0 {
			t.Errorf("%s has the events %+v left", name, left)
		}
	}
}

// TestEventsOfAnActionAreNoDryRun verifies that change events of an action that began are not sent
// as a dry run if the controller was killed and restarts with --dry-run.
func TestEventsOfAnActionAreNoDryRun(t *testing.T) {
	t.Parallel()
	s := newSink(t)
	c := courseOf("job")
	c.args = append(slices.Clone(c.args), "--change-events-cluster-name=test", "--change-events-enabled", "--change-events-endpoint="+s.URL)
	l := newLane(t, c)
	const name, started = "began", 5 // the write of its course that stores the start
	l.CreateDeploymentAndAwaitObserved(l.targets(), name, 3)
	l.way.arm(name, point{n: started, answered: true}, c.writes, l.Controller().Kill)
	l.ask(name, name)
	l.reaches(name, v1alpha1.PhaseWaitingApproval)
	l.WantCommand(fleettest.Approver, cli.CodeOK, []string{"approve", name, "--yes"})
	l.Until(func() error {
		select {
		case <-l.Controller().Ended():
			return nil
		default:
			return errors.New("the controller lives")
		}
	})
	l.StartController("--dry-run")
	want := []string{"execution-approved", "execution-started", "execution-succeeded"}
	l.Until(func() error {
		if got := s.of(name); !slices.Equal(got, want) {
			return fmt.Errorf("the sink was sent %q, want %q", got, want)
		}
		return nil
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.got {
		if p.DryRun {
			t.Errorf("%s was sent as a dry run", p.Action)
		}
	}
}
