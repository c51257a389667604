package crash

import (
	"slices"
	"strings"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// A course is the way that executions go, in a matrix of deaths.
type course struct {
	name     string
	args     []string // of the controller
	inline   bool     // the action runs in the controller
	approval bool     // it needs one
	window   bool     // it ends when somebody finalizes it
	trial    bool     // it is tried out in a Job of its own
	back     bool     // it takes back what another one did

	writes []string // of an execution during which nobody dies, in their order
}

// What is written of an execution.
const (
	status   = "PATCH kubernetesexecutions/status"
	holds    = "PATCH kubernetesexecutions" // it, or lets it go
	recorded = status + " by the auditor"
	expires  = "PATCH jobs"
)

func courses() []course {
	inline := []string{"--inline-actions=scale_deployment"}
	return []course{
		{
			name: "job", approval: true, window: true,
			writes: []string{status, status, holds, postsJob, status, status, expires, status, recorded, holds},
		},
		{
			// From nothing to executing is one write.
			name: "inline", args: inline, inline: true, window: true,
			writes: []string{holds, status, acts, status, status, recorded, holds},
		},
		{
			// That it is approved is stored before that it executes.
			name: "inline-approved", args: inline, inline: true, approval: true, window: true,
			writes: []string{status, status, holds, status, acts, status, status, recorded, holds},
		},
		{
			// What became of it, and that it is over, is one write.
			name: "inline-at-once", args: append(inline, "--rollback-window=0"), inline: true,
			writes: []string{holds, status, acts, status, recorded, holds},
		},
		{
			// What is tried out is not held: it may go at any time.
			name: "trial", args: []string{"--dry-run-executor=job"}, trial: true, window: true,
			writes: []string{postsJob, status, expires, status, holds, postsJob, status, status, expires, status, recorded, holds},
		},
		{
			// What is taken back was done inline, and is over.
			name: "rollback", args: inline, back: true, window: true,
			writes: []string{status, holds, postsJob, status, status, expires, status, recorded, holds},
		},
	}
}

// courseOf is the course of a name.
func courseOf(name string) course {
	all := courses()
	return all[slices.IndexFunc(all, func(c course) bool { return c.name == name })]
}

// effects is how many Jobs are made, or how often something is done inline.
func (c course) effects() int {
	if c.trial {
		return 2
	}
	return 1
}

// replicas is how many the target has, and is to have.
func (c course) replicas() (before, after int32) {
	if c.back {
		return 5, 3
	}
	return 3, 5
}

// purposes are those of the Jobs of an execution.
func (c course) purposes() []string {
	var all []string
	if c.trial {
		all = append(all, v1alpha1.PurposeDryRun)
	}
	if !c.inline {
		all = append(all, v1alpha1.PurposeExecute)
	}
	return all
}

// points are where a controller is to die: nowhere first, then before and after each
// write.
func (c course) points() []point {
	all := []point{{}}
	for n := range len(c.writes) {
		all = append(all, point{n: n + 1}, point{n: n + 1, answered: true})
	}
	return all
}

// phases are those that an execution goes through.
func (c course) phases() string {
	all := []string{"validating", "validated", "waiting_approval", "executing", "rollback_ready", "completed"}
	if !c.approval {
		all = slices.Delete(all, 2, 3)
	}
	return strings.Join(all, " ")
}

// trail is what the audit has of an execution whose action was tried again so
// often.
func (c course) trail(retries int32) string {
	all := []string{"requested", "policy_decided", "validated"}
	if c.approval {
		all = append(all, "approval_requested", "approved")
	}
	all = append(all, "started")
	for range retries + 1 {
		all = append(all, "attempt_finished")
	}
	return strings.Join(append(all, "result", "rollback_available", "finalized"), " ")
}
