package crash

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/execution/pgstore"
	"github.com/fleetloop/fleetloop/test/execution/fleettest"
)

const (
	// lanes is how many controllers live and die beside each other, each with a
	// namespace of its own.
	lanes = 4
	// mostWrites is more than any execution needs.
	mostWrites = 40

	phases = "validating validated waiting_approval executing rollback_ready completed"
	trail  = "requested policy_decided validated approval_requested approved started attempt_finished result rollback_available finalized"
)

// Wherever the controller dies, the next one goes on: the end is the same, the
// action is done once, by the plan that was approved, and the audit has all of it.
func TestDiesAtEachWrite(t *testing.T) {
	m := &matrix{struck: map[string][]string{}}
	t.Run("lanes", func(t *testing.T) {
		for n := range lanes {
			t.Run(fmt.Sprint(n), func(t *testing.T) {
				t.Parallel()
				m.lane(t)
			})
		}
	})
	if t.Failed() {
		return
	}
	for _, mode := range modes() {
		got := m.struck[mode]
		slices.Sort(got)
		t.Logf("%d deaths %s: %q", len(got), mode, got)
		for _, want := range []string{
			"PATCH kubernetesexecutions/status", "PATCH kubernetesexecutions/status by the auditor", "PATCH kubernetesexecutions",
			"POST jobs", "PATCH jobs",
		} {
			if !slices.Contains(got, want) {
				t.Errorf("no controller died %s %s", mode, want)
			}
		}
	}
}

func modes() []string { return []string{before, after} }

const (
	before = "before"
	after  = "after"
)

func (p point) mode() string {
	if p.answered {
		return after
	}
	return before
}

// A matrix has all points, and gives each of them to one lane.
type matrix struct {
	mu     sync.Mutex
	begun  bool
	n      [2]int  // of the last point that was given away, in each mode
	over   [2]bool // there are no more writes
	struck map[string][]string
}

// next gives a point: nowhere first, then the nth write before and after it is
// made, until a run needs no more.
func (m *matrix) next() (at point, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.begun {
		m.begun = true
		return point{}, true
	}
	mode := 0
	if m.over[0] || !m.over[1] && m.n[1] < m.n[0] {
		mode = 1
	}
	if m.over[mode] {
		return point{}, false
	}
	m.n[mode]++
	return point{n: m.n[mode], answered: mode == 1}, true
}

// done notes what came of a point: where the controller died, or that it did not.
func (m *matrix) done(at point, struck string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	mode := slices.Index(modes(), at.mode())
	switch {
	case struck != "":
		m.struck[at.mode()] = append(m.struck[at.mode()], struck)
	case at.n > 0:
		m.over[mode] = true
	}
}

// A lane is a controller, and those that come after it.
type lane struct {
	*fleettest.Fleet

	way   *way
	audit *pgstore.Store
}

// lane has a controller die at one point after the other.
func (m *matrix) lane(t *testing.T) {
	t.Helper()
	w := &way{TB: t}
	l := &lane{way: w, Fleet: fleettest.Start(t, fleettest.Options{
		Host: w.lead,
		Args: []string{"--leader-elect=false"}, // a Lease of the dead is not what this is about
	})}
	l.audit = l.Audit()
	for !t.Failed() {
		at, ok := m.next()
		if !ok {
			break
		}
		m.done(at, l.run(at))
	}
	l.WantSound(l.audit)
}

// until waits for something of an execution, and starts the next controller when
// one has died.
func (l *lane) until(name string, check func(ke *v1alpha1.KubernetesExecution) error) *v1alpha1.KubernetesExecution {
	l.Helper()
	var ke *v1alpha1.KubernetesExecution
	l.Until(func() error {
		ke = l.Get(name)
		return errors.Join(l.revive(), check(ke))
	})
	return ke
}

// revive starts the next controller when one has died.
func (l *lane) revive() error {
	l.Helper()
	select {
	case <-l.Controller().Ended():
		if _, struck, _ := l.way.seen(); struck == "" {
			return errors.New("it has ended, and nobody has killed it")
		}
		l.StartController()
	default:
	}
	return nil
}

// reaches waits for a phase.
func (l *lane) reaches(name string, phase v1alpha1.Phase) *v1alpha1.KubernetesExecution {
	l.Helper()
	return l.until(name, func(ke *v1alpha1.KubernetesExecution) error {
		if ke.Status.Phase != phase {
			return fmt.Errorf("execution %q is %q (%s %s), want %q", name, ke.Status.Phase, ke.Status.ReasonDetail, ke.Status.Message, phase)
		}
		return nil
	})
}

// run has an execution go all its way, during which the controller dies, and
// says where it did.
func (l *lane) run(at point) (struck string) {
	l.Helper()
	name := fmt.Sprintf("%s-%d", at.mode(), at.n)
	if at.n > mostWrites {
		l.Fatalf("an execution needs more than %d writes", mostWrites)
	}
	defer func() {
		if l.Failed() {
			writes, _, _ := l.way.seen()
			l.Errorf("that was execution %q, with a death at %q; it had the writes %q", name, struck, writes)
		}
	}()
	l.Deployment(l.Dear, name, 3)
	l.way.arm(at, l.Controller().Kill)

	l.Does(fleettest.Requester, cli.CodeOK, fleettest.Scale(l.Dear, name, 5, "--name="+name))
	asked := l.reaches(name, v1alpha1.PhaseWaitingApproval)
	l.Does(fleettest.Approver, cli.CodeOK, []string{"approve", name, "--yes"})
	l.reaches(name, v1alpha1.PhaseRollbackReady)
	l.Does(fleettest.Requester, cli.CodeOK, []string{"exec", "finalize", name})
	ended := l.until(name, over)
	l.until(name, func(*v1alpha1.KubernetesExecution) error {
		for _, j := range l.Jobs(name) {
			if j.Spec.TTLSecondsAfterFinished == nil {
				return fmt.Errorf("Job %q stays for ever", j.Name)
			}
		}
		return nil
	})
	writes, struck, made := l.way.seen()
	if err := l.revive(); err != nil { // it may have been the last write
		l.Error(err)
	}
	if at.n == 0 {
		l.Logf("without a death there are the writes %q", writes)
	}
	l.check(asked, ended, made)
	return struck
}

// over is nil when nothing more will be written.
func over(ke *v1alpha1.KubernetesExecution) error {
	if ke.Status.Phase != v1alpha1.PhaseCompleted || len(ke.Finalizers) > 0 || !meta.IsStatusConditionTrue(ke.Status.Conditions, v1alpha1.ConditionAuditRecorded) {
		return fmt.Errorf("execution %q is %q (%s) with finalizers %q", ke.Name, ke.Status.Phase, ke.Status.Message, ke.Finalizers)
	}
	return nil
}

// check looks at what became of an execution, of which asked is what was put
// before whoever approved.
func (l *lane) check(asked, ended *v1alpha1.KubernetesExecution, made int) {
	l.Helper()
	s := &ended.Status
	if got := fleettest.Phases(ended); got != phases || s.Outcome != v1alpha1.OutcomeSucceeded {
		l.Errorf("outcome %q after the phases %q", s.Outcome, got)
	}
	r := s.ExecutionResults
	if r == nil || !r.Success || r.RetriesAttempted != 0 || len(r.ResourcesAffected) != 1 || r.ResourcesAffected[0].Before != "replicas: 3" || r.ResourcesAffected[0].After != "replicas: 5" {
		l.Fatalf("results %+v", r)
	}
	jobs := l.Jobs(ended.Name)
	if len(jobs) != 1 || made != 1 || len(l.Pods(ended.Name)) != 1 {
		l.Fatalf("%d Jobs with %d Pods, of which %d were made; want one", len(jobs), len(l.Pods(ended.Name)), made)
	}
	if jobs[0].Name != r.JobName || jobs[0].UID != r.JobUID {
		l.Errorf("Job %s %s, want %s %s", jobs[0].Name, jobs[0].UID, r.JobName, r.JobUID)
	}
	plan := asked.Status.Plan.Hash
	a := s.Approval
	if a == nil || a.State != v1alpha1.ApprovalApproved || len(a.Received) != 1 || a.Received[0].Approver != fleettest.Approver {
		l.Fatalf("approval %+v", a)
	}
	for what, hash := range map[string]string{
		"of the status": s.Plan.Hash, "that ran": r.PlanHash, "of the Job": jobs[0].Annotations[v1alpha1.AnnotationPlan], "that was approved": a.Received[0].PlanHash,
	} {
		if hash != plan {
			l.Errorf("the plan %s is %s, and %s was put before whoever approved", what, hash, plan)
		}
	}
	if d := l.Target(l.Dear, ended.Name); *d.Spec.Replicas != 5 || d.Generation != 2 { // each change of the spec is a generation
		l.Errorf("the target has %d replicas in generation %d, want 5 in 2", *d.Spec.Replicas, d.Generation)
	}
	l.checkTrail(ended, plan)
}

// checkTrail holds that the audit has each thing once, and of the same plan.
func (l *lane) checkTrail(ke *v1alpha1.KubernetesExecution, plan string) {
	l.Helper()
	var got []string
	events := l.Trail(l.audit, ke)
	for i := range events {
		e := &events[i]
		got = append(got, string(e.Type))
		if cmp.Or(e.PlanHash, plan) != plan {
			l.Errorf("the audit says %s of plan %s, want %s", e.Type, e.PlanHash, plan)
		}
	}
	if strings.Join(got, " ") != trail {
		l.Errorf("the audit has %q, want %q", got, trail)
	}
}
