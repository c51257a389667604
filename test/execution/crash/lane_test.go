package crash

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/audit"
	"github.com/fleetloop/fleetloop/test/execution/fleettest"
)

// A lane is a controller, and those that come after it.
type lane struct {
	*fleettest.Fleet

	course course
	way    *way
	audit  *audit.PostgresStore
	turn   int // how many executions were deleted
}

// newLane starts a controller for executions that go a course.
func newLane(t *testing.T, c course) *lane {
	t.Helper()
	w := &way{TB: t}
	l := &lane{course: c, way: w, Fleet: fleettest.Start(t, fleettest.Options{
		Host: w.lead,
		Args: append([]string{"--leader-elect=false"}, c.args...), // a Lease of the dead is not what this is about
	})}
	l.audit = l.OpenAudit()
	return l
}

// lane has a controller die at one point after the other.
func (m *matrix) lane(t *testing.T) {
	t.Helper()
	at, ok := m.next()
	if !ok {
		return // others have been faster
	}
	l := newLane(t, m.course)
	for ; ok && !t.Failed(); at, ok = m.next() {
		m.run(l, at)
	}
	l.WantAuditIntact(l.audit)
}

// until waits for something of an execution, and starts the next controller when
// one has died.
func (l *lane) until(name string, check func(ke *v1alpha1.KubernetesExecution) error) *v1alpha1.KubernetesExecution {
	l.Helper()
	var ke *v1alpha1.KubernetesExecution
	l.Until(func() error {
		ke = l.GetExecution(name)
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

// wantDeath holds that a controller has died where it was to die, and has written
// what was wanted until then.
func (l *lane) wantDeath(at point, writes []string, struck string) {
	l.Helper()
	switch {
	case at.n == 0 && !slices.Equal(writes, l.course.writes):
		l.Errorf("without a death there are the writes %q, want %q", writes, l.course.writes)
	case at.n > 0 && struck == "":
		l.Errorf("nobody died %s write %d: there are the writes %q, want %q", at.mode(), at.n, writes, l.course.writes)
	}
}

// run has an execution go all its way, during which the controller dies.
func (l *lane) run(at point) {
	l.Helper()
	name := fmt.Sprintf("%s-%d", at.mode(), at.n)
	defer func() {
		if l.Failed() {
			writes, struck, _ := l.way.seen()
			l.Errorf("that was execution %q, with a death at %q; it had the writes %q", name, struck, writes)
		}
	}()
	l.CreateDeploymentAndAwaitObserved(l.targets(), name, 3)
	l.precede(name)
	l.way.arm(name, at, l.course.writes, l.Controller().Kill)

	l.ask(name, name)
	var plan string
	if l.course.approval {
		plan = l.reaches(name, v1alpha1.PhaseWaitingApproval).Status.Plan.Hash
		l.WantCommand(fleettest.Approver, cli.CodeOK, []string{"approve", name, "--yes"})
	}
	if l.course.window {
		l.finalize(name)
	}
	ended := l.until(name, over)
	l.until(name, func(*v1alpha1.KubernetesExecution) error {
		for _, j := range l.ListExecutionJobs(name) {
			if j.Spec.TTLSecondsAfterFinished == nil {
				return fmt.Errorf("Job %q stays for ever", j.Name)
			}
		}
		return nil
	})
	writes, struck, made := l.way.seen()
	l.wantDeath(at, writes, struck)
	if err := l.revive(); err != nil { // it may have been the last write
		l.Error(err)
	}
	if want := l.course.effects(); made != want {
		l.Errorf("there were %d effects, want %d", made, want)
	}
	l.check(ended, cmp.Or(plan, ended.Status.Plan.Hash), retries(l.course, at))
}

// finalize has an execution end that can be taken back.
func (l *lane) finalize(name string) {
	l.Helper()
	l.reaches(name, v1alpha1.PhaseRollbackReady)
	l.WantCommand(fleettest.Requester, cli.CodeOK, []string{"exec", "finalize", name})
}

// targets is the namespace of what is changed.
func (l *lane) targets() string {
	if l.course.approval {
		return l.Dear
	}
	return l.Cheap
}

// first is the execution that another one takes back.
func first(name string) string { return name + "-first" }

// precede does what is to be taken back.
func (l *lane) precede(name string) {
	l.Helper()
	if !l.course.back {
		return
	}
	l.askInline(first(name), name)
	l.finalize(first(name))
	l.until(first(name), over)
}

// ask asks for an execution of the lane's course.
func (l *lane) ask(name, target string) {
	l.Helper()
	switch {
	case l.course.back:
		l.WantCommand(fleettest.Requester, cli.CodeOK, []string{"rollback", first(name), "--name=" + name})
	case l.course.inline:
		l.askInline(name, target)
	case l.course.trial:
		l.WantCommand(fleettest.Requester, cli.CodeOK, fleettest.Scale(l.targets(), target, 5, "--name="+name, "--always-dry-run"))
	default:
		l.WantCommand(fleettest.Requester, cli.CodeOK, fleettest.Scale(l.targets(), target, 5, "--name="+name))
	}
}

// askInline asks for one that runs in the controller.
func (l *lane) askInline(name, target string) {
	l.Helper()
	l.CreateExecution(fleettest.Requester, &v1alpha1.KubernetesExecution{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.KubernetesExecutionSpec{
			Action: "scale_deployment", ExecutionMode: v1alpha1.ExecuteInline,
			Parameters: &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"namespace":%q,"deployment":%q,"replicas":5}`, l.targets(), target)},
		},
	})
}

// retries is how often an action is tried again for a death: once, if it died
// after it was stored that it executes, and before what it did was.
func retries(c course, at point) int32 {
	act := slices.Index(c.writes, acts) + 1 // from 1, as points are
	if !c.inline {
		return 0
	}
	if at.n == act-1 && at.answered || at.n == act || at.n == act+1 && !at.answered {
		return 1
	}
	return 0
}

// over is nil when nothing more will be written.
func over(ke *v1alpha1.KubernetesExecution) error {
	if !execution.IsFinal(ke.Status.Phase) || len(ke.Finalizers) > 0 || !meta.IsStatusConditionTrue(ke.Status.Conditions, v1alpha1.ConditionAuditRecorded) {
		return fmt.Errorf("execution %q is %q (%s) with finalizers %q", ke.Name, ke.Status.Phase, ke.Status.Message, ke.Finalizers)
	}
	return nil
}

// check looks at what became of an execution. The plan is what was put before
// whoever approved, or what ran where nobody had to.
func (l *lane) check(ended *v1alpha1.KubernetesExecution, plan string, retries int32) {
	l.Helper()
	s := &ended.Status
	if got := fleettest.JoinPhaseHistory(ended); got != l.course.phases() || s.Outcome != v1alpha1.OutcomeSucceeded {
		l.Errorf("outcome %q after the phases %q", s.Outcome, got)
	}
	r := s.ExecutionResults
	before, after := l.course.replicas()
	was, is := fmt.Sprintf("replicas: %d", before), fmt.Sprintf("replicas: %d", after)
	if r == nil || !r.Success || r.RetriesAttempted != retries || len(r.ResourcesAffected) != 1 || r.ResourcesAffected[0].Before != was || r.ResourcesAffected[0].After != is {
		l.Fatalf("results %+v, want %d retries", r, retries)
	}
	hashes := map[string]string{"of the status": s.Plan.Hash, "that ran": r.PlanHash}
	if l.course.approval {
		a := s.Approval
		if a == nil || a.State != v1alpha1.ApprovalApproved || len(a.CountedDecisions) != 1 || a.CountedDecisions[0].Approver != fleettest.Approver {
			l.Fatalf("approval %+v", a)
		}
		hashes["that was approved"] = a.CountedDecisions[0].PlanHash
	}
	if !l.course.inline {
		hashes["of the Job"] = l.checkJob(ended)
	}
	for what, hash := range hashes {
		if hash != plan {
			l.Errorf("the plan %s is %s, want %s", what, hash, plan)
		}
	}
	generation := int64(2) // each change of the spec is one
	if l.course.back {
		generation++
	}
	if d := l.GetDeployment(l.targets(), ended.Name); *d.Spec.Replicas != after || d.Generation != generation {
		l.Errorf("the target has %d replicas in generation %d, want %d in %d", *d.Spec.Replicas, d.Generation, after, generation)
	}
	l.checkTrail(ended, plan, l.course.trail(retries))
}

// checkJob holds that there is one Job for each purpose, with one Pod, and gives
// the plan that is run. What was tried out was the same.
func (l *lane) checkJob(ke *v1alpha1.KubernetesExecution) (plan string) {
	l.Helper()
	jobs, r := l.ListExecutionJobs(ke.Name), ke.Status.ExecutionResults
	var purposes []string
	for i := range jobs {
		j := &jobs[i]
		purpose := j.Labels[v1alpha1.LabelPurpose]
		purposes = append(purposes, purpose)
		if purpose == v1alpha1.PurposeDryRun && j.Annotations[v1alpha1.AnnotationPlan] != r.PlanHash {
			l.Errorf("the plan %s was tried out, and %s was run", j.Annotations[v1alpha1.AnnotationPlan], r.PlanHash)
		}
		if purpose != v1alpha1.PurposeExecute {
			continue
		}
		plan = j.Annotations[v1alpha1.AnnotationPlan]
		if j.Name != r.JobName || j.UID != r.JobUID {
			l.Errorf("Job %s %s, want %s %s", j.Name, j.UID, r.JobName, r.JobUID)
		}
	}
	slices.Sort(purposes)
	if want := l.course.purposes(); !slices.Equal(purposes, want) || len(l.ListExecutionPods(ke.Name)) != len(want) {
		l.Fatalf("Jobs for %q with %d Pods; want one each for %q", purposes, len(l.ListExecutionPods(ke.Name)), want)
	}
	if d := ke.Status.ValidationResults.DryRunResults; l.course.trial && (d == nil || !d.Performed || !d.Success) {
		l.Errorf("what was tried out found %+v", d)
	}
	return plan
}

// checkTrail holds that the audit has each thing once, and of the same plan.
func (l *lane) checkTrail(ke *v1alpha1.KubernetesExecution, plan, want string) {
	l.Helper()
	var got []string
	events := l.ListAuditTrail(l.audit, ke)
	for i := range events {
		e := &events[i]
		got = append(got, string(e.Type))
		if cmp.Or(e.PlanHash, plan) != plan {
			l.Errorf("the audit says %s of plan %s, want %s", e.Type, e.PlanHash, plan)
		}
	}
	if strings.Join(got, " ") != want {
		l.Errorf("the audit has %q, want %q", got, want)
	}
}
