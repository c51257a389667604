package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/cli/resource"
	"github.com/fleetloop/fleetloop/internal/backoff"
)

// errWaitTimeout is the cause of a wait that timed out.
var errWaitTimeout = errors.New("timed out")

type waitOptions struct {
	scope
	watchOptions
	condition string
	timeout   time.Duration
	all       bool
}

func newWaitCommand(s *session) *cobra.Command {
	var o waitOptions
	cmd := &cobra.Command{
		Use:   "wait KIND [NAME|ID ...] --for=phase=PHASE|condition=TYPE[=STATUS]|delete",
		Short: "Wait for a condition of resources",
		Example: "  fleetloop wait cluster eu-1 --for=phase=Ready --timeout=10m\n" +
			"  fleetloop wait nodepools -l tier=gold --for=condition=Reconciled\n" +
			"  fleetloop wait cluster/eu-1 --for=delete",
		ValidArgsFunction: s.completeKindOrName,
		RunE:              func(cmd *cobra.Command, args []string) error { return runWait(s, cmd, args, o) },
	}
	o.addFlags(s, cmd, true)
	cmd.Flags().StringVar(&o.condition, "for", "", "`condition` to wait for: phase=PHASE, condition=TYPE[=STATUS] or delete")
	_ = cmd.RegisterFlagCompletionFunc("for", cobra.FixedCompletions(
		[]string{"phase=" + string(v1.PhaseReady), "condition=" + v1.ConditionReconciled, "delete"}, cobra.ShellCompDirectiveNoFileComp))
	cmd.Flags().DurationVar(&o.timeout, "timeout", 5*time.Minute, "timeout as a `duration`; 0 checks once")
	cmd.Flags().BoolVar(&o.all, "all", false, "wait for all resources of the kind")
	o.addWatchFlags(cmd)
	return cmd
}

func runWait(s *session, cmd *cobra.Command, args []string, o waitOptions) error {
	goal, err := parseGoal(o.condition)
	if err != nil {
		return usageError(cmd, err)
	}
	switch {
	case o.timeout < 0:
		return usageErrorf(cmd, "--timeout %s is negative; use a duration such as 10m", o.timeout)
	case o.interval <= 0:
		return usageErrorf(cmd, "--interval %s is not positive; use a duration such as 2s", o.interval)
	}
	what, err := o.parseTarget(cmd, args)
	if err != nil {
		return err
	}
	if what.isUnrestricted() && !o.all {
		return usageErrorf(cmd, "give the %s by name, with -l, or with --all", what.kind.Collection)
	}
	client, err := s.newClient(cmd)
	if err != nil {
		return err
	}
	defer client.CloseIdle()
	what.missingOK = goal.deleted // a missing resource counts as deleted
	items, err := what.findItems(cmd.Context(), client)
	if err != nil {
		return err
	}
	return s.waitForGoal(cmd.Context(), client, items, goal, o)
}

// waitForGoal polls items until all reach the goal.
func (s *session) waitForGoal(ctx context.Context, client *fleetclient.Client, pending []resource.Item, g goal, o waitOptions) error {
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.timeout, errWaitTimeout)
		defer cancel()
	}
	var readErr error // of the last complete poll
	for {
		left, transientErr, err := pollAndPrintReached(ctx, s, client, pending, g)
		if err != nil {
			return err
		}
		if len(left) == 0 {
			return nil
		}
		pending = left
		if ctx.Err() == nil { // an interrupted poll has no result
			readErr = transientErr
		}
		if o.timeout <= 0 { // check once
			return newWaitTimeoutError(pending, g, o.timeout, readErr)
		}
		err = backoff.Sleep(ctx, max(o.interval, retryAfter(readErr)))
		if errors.Is(err, errWaitTimeout) {
			return newWaitTimeoutError(pending, g, o.timeout, readErr)
		}
		if err != nil {
			return fmt.Errorf("wait for %s: %w", g, err)
		}
	}
}

// pollAndPrintReached reads the items, prints those that have reached the goal and returns the others. transientErr is
// why some of them could not be read.
func pollAndPrintReached(
	ctx context.Context, s *session, client *fleetclient.Client, pending []resource.Item, g goal,
) (left []resource.Item, transientErr, err error) {
	for n, item := range pending {
		now, gone, err := resource.ReadAgain(ctx, client, item)
		switch {
		case ctx.Err() != nil:
			return append(left, pending[n:]...), transientErr, nil
		case err != nil && fleetclient.IsTransient(err):
			left = append(left, item)
			transientErr = err
			continue
		case err != nil:
			return nil, nil, err
		case gone && !g.deleted:
			return nil, nil, &failure{err: fmt.Errorf("wait for %s: %s was deleted", g, item.KindAndName()), code: CodePrecondition}
		case !gone && !g.isReached(now.Resource):
			left = append(left, now)
			continue
		}
		if _, err := fmt.Fprintf(s.env.Stdout, "%s %s\n", item.KindAndName(), g.describeReached()); err != nil {
			return nil, nil, err
		}
	}
	return left, transientErr, nil
}

func newWaitTimeoutError(pending []resource.Item, g goal, timeout time.Duration, readErr error) error {
	const maxListed = 5
	var b strings.Builder
	fmt.Fprintf(&b, "wait for %s: timed out after %s: ", g, timeout)
	for n, i := range pending[:min(len(pending), maxListed)] {
		if n > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "%s is %s", i.KindAndName(), g.describeState(i))
	}
	if more := len(pending) - maxListed; more > 0 {
		fmt.Fprintf(&b, "; and %d more", more)
	}
	err := errors.New(b.String())
	if readErr != nil {
		err = fmt.Errorf("%w: %w", err, readErr)
	}
	return &failure{err: err, code: CodeTimeout, next: "run 'fleetloop describe " + pending[0].KindAndName() + "' to see why"}
}

// goal is the state for which a command waits.
type goal struct {
	deleted   bool
	phase     v1.Phase
	condition string
	status    v1.ConditionStatus
}

func parseGoal(text string) (goal, error) {
	what, value, _ := strings.Cut(text, "=")
	condition, status, hasStatus := strings.Cut(value, "=")
	if !hasStatus {
		status = string(v1.ConditionTrue)
	}
	switch {
	case what == "delete" && value == "":
		return goal{deleted: true}, nil
	case what == "phase":
		return parsePhaseGoal(value)
	case what == "condition" && condition != "":
		return parseConditionGoal(condition, status)
	}
	return goal{}, fmt.Errorf("--for=%q is invalid; use --for=phase=Ready, --for=condition=Reconciled or --for=delete", text)
}

func parsePhaseGoal(phaseName string) (goal, error) {
	var known []string
	for _, phase := range []v1.Phase{v1.PhasePending, v1.PhaseProvisioning, v1.PhaseReady, v1.PhaseFailed, v1.PhaseDeleting} {
		if strings.EqualFold(phaseName, string(phase)) {
			return goal{phase: phase}, nil
		}
		known = append(known, string(phase))
	}
	return goal{}, fmt.Errorf("--for=phase: unknown phase %q%s", phaseName, resource.SuggestWords(phaseName, known))
}

func parseConditionGoal(condition, statusText string) (goal, error) {
	var known []string
	for _, status := range []v1.ConditionStatus{v1.ConditionTrue, v1.ConditionFalse, v1.ConditionUnknown} {
		if strings.EqualFold(statusText, string(status)) {
			return goal{condition: condition, status: status}, nil
		}
		known = append(known, string(status))
	}
	return goal{}, fmt.Errorf("--for=condition: unknown status %q%s", statusText, resource.SuggestWords(statusText, known))
}

func (g goal) String() string {
	switch {
	case g.deleted:
		return "deletion"
	case g.phase != "":
		return "phase " + string(g.phase)
	}
	return "condition " + g.condition + " " + string(g.status)
}

// isReached reports whether a resource has reached the goal. Readiness for an older spec does not
// count.
func (g goal) isReached(r v1.Resource) bool {
	if g.phase != "" {
		current := g.phase != v1.PhaseReady || r.Status.ObservedGeneration >= r.Generation
		return r.Status.Phase == g.phase && current
	}
	for _, c := range r.Status.Conditions {
		if c.Type == g.condition {
			return strings.EqualFold(string(c.Status), string(g.status))
		}
	}
	return false
}

// describeReached returns the message for a reached goal, as the end of a line.
func (g goal) describeReached() string {
	if g.deleted {
		return "deleted"
	}
	return "reached " + g.String()
}

// describeState returns the current state of an item that has not reached the goal.
func (g goal) describeState(i resource.Item) string {
	if g.condition != "" {
		for _, c := range i.Resource.Status.Conditions {
			if c.Type == g.condition {
				return fmt.Sprintf("%s %s (%s)", c.Type, c.Status, c.Reason)
			}
		}
		return "without condition " + g.condition
	}
	return string(i.Resource.Status.Phase)
}
