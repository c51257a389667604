package outage

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/execution/audit"
	"github.com/fleetloop/fleetloop/test/execution/fleettest"
)

const (
	alice = fleettest.Requester
	bob   = fleettest.Approver

	// away is how long the API server is.
	away = time.Minute
	// mostLines is how much a controller may say about that.
	mostLines = 150
	// mostSeconds of a processor it may take meanwhile.
	mostSeconds = 5.0
	// soon is when it has to go on. Left to themselves, the caches of a controller
	// would ask again after a minute at worst.
	soon = 50 * time.Second
	// lease is for how long the controllers of a fleet wait for one that has gone
	// without a word.
	lease = 15 * time.Second
)

// four holds once the Deployment has been patched, and its controller has seen it:
// before that an execution would fail.
const four = `package four

import rego.v1

default allow := false

allow if {
	input.target.object.spec.replicas == 4
	input.target.object.status.observedGeneration == 2
}
`

// The executions that are under way, by the phase that they are in.
const (
	validating = "validating" // a precondition does not hold yet
	waiting    = "waiting"    // for an approval
	runs       = "runs"       // its Pod goes on beyond the end
	works      = "works"      // its Pod begins to act while nothing answers
	queued     = "queued"     // behind the one that runs
	ready      = "ready"      // is done, and can be taken back

	later = "later" // is asked for when all is over
)

// Executions end as they would have when the API server comes back after a minute,
// and meanwhile nothing becomes of them. A controller that is alone goes on; one
// of several gives up its turn, and the one after it goes on.
func TestAPIServerIsAway(t *testing.T) {
	t.Parallel()
	alone := &course{Fleet: fleettest.Start(t, fleettest.Options{Image: fleettest.Gated, Args: []string{"--leader-elect=false"}})}
	elected := &course{Fleet: fleettest.Start(t, fleettest.Options{Image: fleettest.Gated}), elected: true}
	all := []*course{alone, elected}
	for _, c := range all {
		c.ask()
	}
	for _, c := range all {
		c.underWay()
	}

	alone.StopAPIServer()
	began := time.Now()
	ticker := time.NewTicker(kubebedtest.PollEvery)
	defer ticker.Stop()
	for time.Since(began) < away && !t.Failed() {
		<-ticker.C
		for _, c := range all {
			c.meanwhile(time.Since(began))
		}
	}
	for _, c := range all {
		c.bounded()
	}
	alone.StartAPIServer()
	back := time.Now()
	for _, c := range all {
		c.sameAsBefore()
	}
	for _, c := range all {
		c.goesOn(back)
	}
	for _, c := range all {
		c.end()
	}
}

// A course is a fleet with executions in each phase.
type course struct {
	*fleettest.Fleet

	elected bool // its controller is one of several

	before map[string]*v1alpha1.KubernetesExecution
	opened bool
	ended  int // controllers
	lines  int
	cpu    float64
}

// names are those of the executions, in the order in which they are asked for.
func names() []string { return []string{validating, waiting, runs, works, ready, queued} }

// ask asks for all of them.
func (c *course) ask() {
	c.Helper()
	for _, name := range names() {
		switch name {
		case queued:
			c.runs(runs) // it is there first
			c.scale(c.Cheap, runs, 6, name)
		case waiting:
			c.CreateDeploymentAndAwaitObserved(c.Dear, name, 3)
			c.scale(c.Dear, name, 5, name)
		case validating:
			c.CreateDeploymentAndAwaitObserved(c.Cheap, name, 3)
			c.CreateExecution(alice, &v1alpha1.KubernetesExecution{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: v1alpha1.KubernetesExecutionSpec{
					Action:     "scale_deployment",
					Parameters: &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"namespace":%q,"deployment":%q,"replicas":5}`, c.Cheap, name)},
					PreConditions: []v1alpha1.Condition{{
						Type: "four", Required: true, Timeout: &metav1.Duration{Duration: time.Hour},
						Rego: four,
					}},
				},
			})
		default:
			c.CreateDeploymentAndAwaitObserved(c.Cheap, name, 3)
			c.scale(c.Cheap, name, 5, name)
		}
	}
	c.CreateDeploymentAndAwaitObserved(c.Cheap, later, 3) // now, as others than ours see to Deployments
}

// scale asks for a Deployment to be scaled, with time for more than the outage.
func (c *course) scale(namespace, target string, replicas int, name string) {
	c.Helper()
	c.WantCommand(alice, cli.CodeOK, fleettest.Scale(namespace, target, replicas, "--name="+name, "--action-timeout=15m"))
}

// runs waits until the Pod of an execution runs.
func (c *course) runs(name string) {
	c.Helper()
	c.Until(func() error {
		for _, p := range c.ListExecutionPods(name) {
			if p.Status.Phase == "Running" {
				return nil
			}
		}
		return fmt.Errorf("no Pod of %s runs", name)
	})
}

// underWay waits until each is where it is to be when the API server goes.
func (c *course) underWay() {
	c.Helper()
	c.AwaitExecution(validating, func(ke *v1alpha1.KubernetesExecution) error {
		if v := ke.Status.ValidationResults; v == nil || len(v.PreConditionResults) != 1 {
			return errors.New("the precondition was not looked at yet")
		}
		return nil
	})
	c.AwaitPhase(waiting, v1alpha1.PhaseWaitingApproval)
	c.Open(ready)
	c.AwaitPhase(ready, v1alpha1.PhaseRollbackReady)
	for _, name := range []string{runs, works} {
		c.runs(name)
		c.AwaitPhase(name, v1alpha1.PhaseExecuting)
	}
	c.AwaitExecution(queued, func(ke *v1alpha1.KubernetesExecution) error {
		if ke.Status.ReasonDetail != v1alpha1.DetailTargetBusy {
			return fmt.Errorf("it is %s because of %q", ke.Status.Phase, ke.Status.ReasonDetail)
		}
		return nil
	})
	c.before = map[string]*v1alpha1.KubernetesExecution{}
	for _, name := range names() {
		c.before[name] = c.GetExecution(name)
	}
	c.lines, c.cpu = c.Controller().Count("\n"), c.seconds()
}

// seconds is how long the controller has kept a processor busy.
func (c *course) seconds() float64 {
	c.Helper()
	for line := range strings.Lines(c.Controller().Metrics()) {
		if text, ok := strings.CutPrefix(line, "process_cpu_seconds_total "); ok {
			value, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			if err != nil {
				c.Fatal(err)
			}
			return value
		}
	}
	c.Fatal("the controller does not say how long it was busy")
	return 0
}

// meanwhile looks after a fleet while nothing answers.
func (c *course) meanwhile(since time.Duration) {
	c.Helper()
	if since > away/2 && !c.opened {
		c.opened = true
		c.WriteGateFile(c.before[works])
	}
	select {
	case <-c.Controller().Ended():
	default:
		return
	}
	c.ended++
	if most := map[bool]int{true: 1}[c.elected]; c.ended > most {
		c.Fatalf("the controller has ended %d times, want %d at most", c.ended, most)
	}
	c.Logf("the controller has given up its turn after %s", since)
	c.StartControllerWithoutWaiting()
	c.lines, c.cpu = 0, 0
}

// bounded holds that the controller was neither loud nor busy.
func (c *course) bounded() {
	c.Helper()
	said, busy := c.Controller().Count("\n")-c.lines, c.seconds()-c.cpu
	c.Logf("elected: %t; in %s the controller said %d lines and was busy for %.1f s", c.elected, away, said, busy)
	if said > mostLines || busy > mostSeconds {
		c.Errorf("the controller said %d lines and was busy for %.1f s", said, busy)
	}
}

// sameAsBefore holds that nothing became of the executions.
func (c *course) sameAsBefore() {
	c.Helper()
	for name, before := range c.before {
		now := c.GetExecution(name)
		jobs := map[string]int{runs: 1, works: 1, ready: 1}[name]
		if got := len(c.ListExecutionJobs(name)); got != jobs {
			c.Errorf("%s has %d Jobs, want %d", name, got, jobs)
		}
		if name == works {
			continue // its Pod may have been quick
		}
		if now.Status.Phase != before.Status.Phase || now.Status.Reason != "" {
			c.Errorf("%s is %s %s, and was %s", name, now.Status.Phase, now.Status.Reason, before.Status.Phase)
		}
	}
}

// goesOn waits until the controller does something again.
func (c *course) goesOn(back time.Time) {
	c.Helper()
	c.scale(c.Cheap, later, 5, later)
	c.AwaitPhase(later, v1alpha1.PhaseExecuting)
	most := soon
	if c.elected {
		most += lease
	}
	took := time.Since(back)
	c.Logf("elected: %t; a new execution was executing after %s", c.elected, took)
	if took > most {
		c.Errorf("a new execution was executing %s after the API server was back, want at most %s", took, most)
	}
	c.Open(later)
}

// end has all of them end, each as it would have.
func (c *course) end() {
	c.Helper()
	c.AwaitPhase(later, v1alpha1.PhaseRollbackReady)
	c.AwaitPhase(works, v1alpha1.PhaseRollbackReady)

	still := c.GetExecution(waiting)
	if a, before := still.Status.Approval, c.before[waiting].Status.Approval; still.Status.Phase != v1alpha1.PhaseWaitingApproval ||
		a.State != v1alpha1.ApprovalPending || !a.Deadline.Equal(before.Deadline) || still.Status.Plan.Hash != c.before[waiting].Status.Plan.Hash {
		c.Errorf("what is waiting for approval is %s: %+v", still.Status.Phase, a)
	}
	if phase := c.GetExecution(queued).Status.Phase; phase != v1alpha1.PhaseValidated {
		c.Errorf("what waits for its turn is %s", phase)
	}
	c.WantCommand(bob, cli.CodeOK, []string{"approve", waiting, "--yes"})
	c.PatchDeploymentAndAwaitObserved(c.Cheap, validating, `{"spec":{"replicas":4}}`)
	for _, name := range []string{runs, waiting, validating, queued} { // the last one's turn comes when the first is done
		c.Open(name)
	}
	c.WantCommand(alice, cli.CodeOK, []string{"exec", "finalize", ready})
	c.AwaitPhase(ready, v1alpha1.PhaseCompleted)
	store := c.OpenAudit()
	for _, name := range names() {
		want := "validating validated executing rollback_ready"
		switch name {
		case waiting:
			want = "validating validated waiting_approval executing rollback_ready"
		case ready:
			want += " completed"
		}
		ke := c.AwaitExecution(name, func(ke *v1alpha1.KubernetesExecution) error {
			if got := fleettest.JoinPhaseHistory(ke); got != want {
				return fmt.Errorf("%s went through the phases %q (%s %s), want %q", name, got, ke.Status.ReasonDetail, ke.Status.Message, want)
			}
			return nil
		})
		if r := ke.Status.ExecutionResults; ke.Status.Outcome != v1alpha1.OutcomeSucceeded || len(c.ListExecutionJobs(name)) != 1 || r == nil || len(r.ResourcesAffected) != 1 {
			c.Errorf("%s: outcome %q, %d Jobs, results %+v", name, ke.Status.Outcome, len(c.ListExecutionJobs(name)), r)
		}
		if name == works {
			c.Logf("what began to act while nothing answered succeeded after %d more attempts", ke.Status.ExecutionResults.RetriesAttempted)
		}
		c.wantTrail(store, ke)
	}
	for name, generation := range map[string]int64{validating: 3, runs: 3, works: 2, ready: 2} { // each change of the spec is one
		want := map[string]int32{runs: 6}[name]
		if want == 0 {
			want = 5
		}
		if d := c.GetDeployment(c.Cheap, name); *d.Spec.Replicas != want || d.Generation != generation {
			c.Errorf("the target of %s has %d replicas in generation %d, want %d in %d", name, *d.Spec.Replicas, d.Generation, want, generation)
		}
	}
	c.WantReplicas(c.Dear, waiting, 5)
	c.WantAuditIntact(store)
}

// wantTrail waits until the audit has all of an execution, and nothing more.
func (c *course) wantTrail(store *audit.PostgresStore, ke *v1alpha1.KubernetesExecution) {
	c.Helper()
	want := 7 // requested, policy_decided, validated, started, attempt_finished, result, rollback_available
	if ke.Status.Phase == v1alpha1.PhaseCompleted {
		want++ // finalized
	}
	if ke.Status.Approval.Required {
		want += 2 // approval_requested, approved
	}
	want += int(ke.Status.ExecutionResults.RetriesAttempted)
	c.Until(func() error {
		if got := len(c.ListAuditTrail(store, ke)); got != want {
			return fmt.Errorf("the audit has %d things of %s, want %d", got, ke.Name, want)
		}
		return nil
	})
}
