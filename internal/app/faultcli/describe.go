package faultcli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
)

func (s *session) newDescribeCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "describe NODE ...",
		Example: "  fleetloop faults describe gpu-node-01",
		Short:   "Show details of faulty nodes, and what to do next",
		Long: "Show details of faulty nodes: the faults and their sources, the actions that the rules require, the changes to the\n" +
			"node, what blocks the drain, the progress of the remedy, the history, and the delivery of change events.",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return newUsageError(cmd, "give the name of a node")
			}
			return nil
		},
		ValidArgsFunction: s.completeFaultyNodeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := s.newClusterClient()
			if err != nil {
				return err
			}
			found, errs, err := c.listFaults(cmd.Context(), args)
			if err != nil {
				return err
			}
			for i := range found {
				if i > 0 {
					if err := s.printLineToStdout("\n"); err != nil {
						return err
					}
				}
				p := &page{w: s.env.Stdout, now: s.env.Now(), paint: s.paintIfColourEnabled}
				if err := p.writeNodeFault(&found[i]); err != nil {
					return err
				}
			}
			return cli.JoinHostErrorsWithExitCode(errs, len(found))
		},
	}
}

// page is written line by line. The first error ends it.
type page struct {
	w     io.Writer
	now   time.Time
	paint func(style terminal.Style, text string) string
	err   error
}

func (p *page) writeLine(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

const fieldWidth = 14

// writeFieldUnlessEmpty writes a name and its value, unless the value is empty.
func (p *page) writeFieldUnlessEmpty(name, value string) {
	if value != "" {
		p.writeLine("%s%s", terminal.Pad(name+":", fieldWidth), terminal.ReplaceUnprintable(value))
	}
}

// writeSectionUnlessEmpty writes a table under a heading, unless it has no rows below its headers.
func (p *page) writeSectionUnlessEmpty(title string, headAndRows [][]string) {
	if len(headAndRows) < 2 {
		return
	}
	p.writeLine("")
	p.writeLine("%s", p.paint(terminal.Bold, title))
	if p.err == nil {
		p.err = writeColumns(p.w, "  ", headAndRows)
	}
}

// formatTimeAndAge returns a time and its age.
func (p *page) formatTimeAndAge(t *metav1.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	text := t.UTC().Format(time.RFC3339)
	if d := t.Sub(p.now); d > 0 {
		return fmt.Sprintf("%s (in %s)", text, terminal.Age(d))
	}
	return fmt.Sprintf("%s (%s ago)", text, terminal.Since(p.now, t.Time))
}

// writeNodeFault writes a full description of the faults of a node.
func (p *page) writeNodeFault(f *v1alpha1.NodeFault) error {
	p.writeOverview(f)
	p.writeFaultTable(f.Spec.Faults)
	p.writeDesiredActions(f.Status.DesiredActions)
	p.writeDrain(f.Status.Drain)
	p.writeRemedy(f.Status.Remediation)
	p.writeConditions(f.Status.Conditions)
	p.writeHistory(&f.Status)
	p.writeSinks(&f.Status)
	return p.err
}

func (p *page) writeOverview(f *v1alpha1.NodeFault) {
	st := &f.Status
	p.writeFieldUnlessEmpty("Node", f.Name)
	phase := cmp.Or(string(st.Phase), "not processed yet: is node-fault-controller running?")
	if p.err == nil {
		p.writeLine("%s%s", terminal.Pad("Phase:", fieldWidth), p.paint(phaseStyle(st.Phase), terminal.ReplaceUnprintable(phase)))
	}
	p.writeFieldUnlessEmpty("Phase since", p.formatTimeAndAge(st.PhaseChangedAt))
	p.writeFieldUnlessEmpty("Fault", faultCodeOrFirstFault(f))
	p.writeFieldUnlessEmpty("Message", st.Message)
	p.writeFieldUnlessEmpty("Session", st.Session)
	if o := st.Owned; o != nil {
		p.writeFieldUnlessEmpty("Owned", formatOwned(o))
	}
	if o := st.Overridden; o != nil {
		p.writeFieldUnlessEmpty("Overridden", p.formatTimeAndAge(&o.DetectedAt)+" by a person, in session "+o.Session)
	}
	p.writeFieldUnlessEmpty("Healthy since", p.formatTimeAndAge(st.HealthySince))
	if next := suggestNextSteps(f); len(next) > 0 {
		p.writeLine("")
		p.writeLine("%s", p.paint(terminal.Bold, "Next steps"))
		for _, line := range next {
			p.writeLine("  %s", terminal.ReplaceUnprintable(line))
		}
	}
}

// formatOwned lists the changes that Fleetloop made to a node.
func formatOwned(o *v1alpha1.Owned) string {
	var parts []string
	if o.Cordon {
		parts = append(parts, "cordon")
	}
	for _, t := range o.Taints {
		parts = append(parts, "taint "+formatTaint(t))
	}
	return strings.Join(parts, ", ")
}

func formatTaint(t corev1.Taint) string {
	text := t.Key
	if t.Value != "" {
		text += "=" + t.Value
	}
	return text + ":" + string(t.Effect)
}

// phaseStyle returns the style of a phase.
func phaseStyle(p v1alpha1.Phase) terminal.Style {
	switch p {
	case v1alpha1.PhaseHealthy, v1alpha1.PhaseRecovering:
		return terminal.Good
	case v1alpha1.PhaseStuck, v1alpha1.PhasePending:
		return terminal.Bad
	case v1alpha1.PhaseQuarantined, v1alpha1.PhaseDraining, v1alpha1.PhaseRemediating:
		return terminal.Busy
	case v1alpha1.PhaseObserved, v1alpha1.PhaseDryRun, v1alpha1.PhaseHeld, v1alpha1.PhaseOverridden, v1alpha1.PhaseGone:
	}
	return terminal.Plain
}

// suggestNextSteps returns the possible actions of a user on a node.
func suggestNextSteps(f *v1alpha1.NodeFault) []string {
	release := "fleetloop faults release " + f.Name + "   removes the cordon and taints of the controller"
	switch f.Status.Phase {
	case v1alpha1.PhaseStuck:
		return []string{"Automatic repair has ended: repair the node.", release + ", after the repair"}
	case v1alpha1.PhaseHeld:
		return []string{"kubectl annotate node " + f.Name + " " + v1alpha1.AnnotationHold + "-   releases the node"}
	case v1alpha1.PhaseOverridden:
		return []string{"kubectl annotate node " + f.Name + " " + v1alpha1.AnnotationOverridden + "-   lets the controller act on the same faults again"}
	case v1alpha1.PhasePending, v1alpha1.PhaseDryRun, v1alpha1.PhaseObserved, v1alpha1.PhaseRecovering, v1alpha1.PhaseHealthy, v1alpha1.PhaseGone:
		return nil
	case v1alpha1.PhaseDraining:
		if d := f.Status.Drain; d != nil && len(d.BlockedPods) > 0 {
			return []string{
				"Some pods cannot be evicted: add capacity for them, or relax their PodDisruptionBudgets.",
				release + ", and ends the drain",
			}
		}
		return []string{release + ", and ends the drain"}
	case v1alpha1.PhaseQuarantined, v1alpha1.PhaseRemediating:
		return []string{release}
	}
	return nil
}

func (p *page) writeFaultTable(list []v1alpha1.Fault) {
	rows := [][]string{{"SOURCE", "CHECK", "ENTITY", "CODES", "FATAL", "AGE", "MESSAGE"}}
	for _, f := range list {
		fatal := "no"
		if f.Fatal {
			fatal = "yes"
		}
		rows = append(rows, []string{
			f.Source,
			f.Check,
			f.Entity,
			strings.Join(f.ErrorCodes, ","),
			fatal,
			terminal.Since(p.now, f.DetectedAt.Time),
			firstLine(f.Message),
		})
	}
	p.writeSectionUnlessEmpty("Faults", rows)
}

// firstLine returns the first line of a text.
func firstLine(text string) string {
	first, _, _ := strings.Cut(text, "\n")
	return first
}

func (p *page) writeDesiredActions(w *v1alpha1.DesiredActions) {
	if w == nil {
		return
	}
	var parts []string
	if w.Cordon {
		parts = append(parts, "cordon")
	}
	if w.Drain {
		parts = append(parts, "drain")
	}
	for _, t := range w.Taints {
		parts = append(parts, "taint "+formatTaint(t))
	}
	for _, r := range w.Remedies {
		parts = append(parts, string(r))
	}
	text := cmp.Or(strings.Join(parts, ", "), "nothing")
	if w.DryRun {
		text += " (dry run: reported, not performed)"
	}
	p.writeLine("")
	p.writeFieldUnlessEmpty("Rules", cmp.Or(strings.Join(w.MatchedRules, ", "), "no match"))
	p.writeFieldUnlessEmpty("Desired", text)
}

func (p *page) writeDrain(d *v1alpha1.DrainStatus) {
	if d == nil {
		return
	}
	p.writeLine("")
	text := fmt.Sprintf(
		"%s; pods left: %d, terminating: %d, evicted: %d",
		strings.ToLower(string(d.State)),
		d.Remaining,
		d.Terminating,
		d.Evicted,
	)
	p.writeFieldUnlessEmpty("Drain", text)
	p.writeFieldUnlessEmpty("Started", p.formatTimeAndAge(&d.StartedAt))
	if d.FinishedAt == nil {
		p.writeFieldUnlessEmpty("Deadline", p.formatTimeAndAge(&d.Deadline))
	}
	p.writeFieldUnlessEmpty("Finished", p.formatTimeAndAge(d.FinishedAt))
	p.writeFieldUnlessEmpty("Message", d.Message)
	rows := [][]string{{"POD", "BLOCKED BY", "MESSAGE"}}
	for _, b := range d.BlockedPods {
		rows = append(rows, []string{b.Pod, b.BlockedBy, firstLine(b.Message)})
	}
	p.writeSectionUnlessEmpty("Blocked pods", rows)
}

func (p *page) writeRemedy(r *v1alpha1.RemediationStatus) {
	if r == nil {
		return
	}
	p.writeLine("")
	p.writeFieldUnlessEmpty("Remedy", fmt.Sprintf("%s, attempt %d, %s", r.Action, r.Attempt, strings.ToLower(string(r.State))))
	if r.ObjectName != "" {
		p.writeFieldUnlessEmpty("Object", r.ObjectKind+" "+r.ObjectName)
	}
	p.writeFieldUnlessEmpty("Started", p.formatTimeAndAge(&r.StartedAt))
	if r.FinishedAt == nil {
		p.writeFieldUnlessEmpty("Deadline", p.formatTimeAndAge(&r.Deadline))
	}
	p.writeFieldUnlessEmpty("Finished", p.formatTimeAndAge(r.FinishedAt))
	p.writeFieldUnlessEmpty("Message", r.Message)
}

func (p *page) writeConditions(list []metav1.Condition) {
	rows := [][]string{{"CONDITION", "STATUS", "AGE", "REASON", "MESSAGE"}}
	for _, c := range list {
		rows = append(rows, []string{c.Type, string(c.Status), terminal.Since(p.now, c.LastTransitionTime.Time), c.Reason, firstLine(c.Message)})
	}
	p.writeSectionUnlessEmpty("Conditions", rows)
}

func (p *page) writeHistory(st *v1alpha1.NodeFaultStatus) {
	rows := [][]string{{"TIME", "ACTION", "OUTCOME", "SESSION", "DELIVERED", "REASON"}}
	for _, r := range slices.Backward(st.History) {
		action := r.Action
		if r.DryRun {
			action += " (dry run)"
		}
		reason := cmp.Or(r.Reason, strings.Join(r.ErrorCodes, ","), r.Check)
		rows = append(rows, []string{
			r.At.UTC().Format(time.RFC3339),
			action,
			r.Outcome,
			r.Session,
			formatDeliveredCount(st, r),
			firstLine(reason),
		})
	}
	p.writeSectionUnlessEmpty("History", rows)
}

// formatDeliveredCount returns how many of the sinks at that time have accepted a record.
func formatDeliveredCount(st *v1alpha1.NodeFaultStatus, r v1alpha1.Record) string {
	accepted, sinks := 0, 0
	for _, d := range st.SinkDeliveries {
		if d.EnabledAt != nil && r.At.Time.Before(d.EnabledAt.Time) {
			continue // the sink was added later
		}
		sinks++
		if r.Sequence <= d.ProcessedSequence && !slices.Contains(d.Rejected, r.Sequence) {
			accepted++
		}
	}
	if sinks == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d", accepted, sinks)
}

func (p *page) writeSinks(st *v1alpha1.NodeFaultStatus) {
	if len(st.SinkDeliveries) == 0 {
		return
	}
	p.writeSectionUnlessEmpty("Sinks of change events", sinkRowsOfNode(p.now, st))
}
