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
	"github.com/fleetloop/fleetloop/internal/app/hostcli"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
)

func (s *session) describeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "describe NODE ...",
		Short: "Show details of faulty nodes, and what to do next",
		Long: "Show details of faulty nodes: the faults and their sources, the actions that the rules require, the changes to the\n" +
			"node, what blocks the drain, the progress of the remedy, the history, and the delivery of change events.",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef(cmd, "node name missing")
			}
			return nil
		},
		ValidArgsFunction: s.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := s.connect()
			if err != nil {
				return err
			}
			found, errs, err := c.faults(cmd.Context(), args)
			if err != nil {
				return err
			}
			for i := range found {
				if i > 0 {
					if err := s.say("\n"); err != nil {
						return err
					}
				}
				p := &page{w: s.env.Stdout, now: s.env.Now(), paint: s.paint}
				if err := p.describe(&found[i]); err != nil {
					return err
				}
			}
			return hostcli.All(errs, len(found))
		},
	}
}

// A page is written line by line; the first error ends it.
type page struct {
	w     io.Writer
	now   time.Time
	paint func(style terminal.Style, text string) string
	err   error
}

func (p *page) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

const fieldWidth = 14

// field writes a name and its value, unless there is none.
func (p *page) field(name, value string) {
	if value != "" {
		p.line("%s%s", terminal.Pad(name+":", fieldWidth), terminal.Clean(value))
	}
}

// section writes a table under a heading, unless it has only its heads.
func (p *page) section(title string, rows [][]string) {
	if len(rows) < 2 {
		return
	}
	p.line("")
	p.line("%s", p.paint(terminal.Bold, title))
	if p.err == nil {
		p.err = grid(p.w, "  ", rows)
	}
}

// when is a time, exact and as an age.
func (p *page) when(t *metav1.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	text := t.UTC().Format(time.RFC3339)
	if d := t.Sub(p.now); d > 0 {
		return fmt.Sprintf("%s (in %s)", text, terminal.Age(d))
	}
	return fmt.Sprintf("%s (%s ago)", text, terminal.Since(p.now, t.Time))
}

// describe writes all about the faults of a node.
func (p *page) describe(f *v1alpha1.NodeFault) error {
	p.head(f)
	p.faults(f.Spec.Faults)
	p.wish(f.Status.DesiredActions)
	p.drain(f.Status.Drain)
	p.remedy(f.Status.Remediation)
	p.conditions(f.Status.Conditions)
	p.history(&f.Status)
	p.sinks(&f.Status)
	return p.err
}

func (p *page) head(f *v1alpha1.NodeFault) {
	st := &f.Status
	p.field("Node", f.Name)
	phase := cmp.Or(string(st.Phase), "not processed yet: is node-fault-controller running?")
	if p.err == nil {
		p.line("%s%s", terminal.Pad("Phase:", fieldWidth), p.paint(style(st.Phase), terminal.Clean(phase)))
	}
	p.field("Phase since", p.when(st.PhaseChangedAt))
	p.field("Fault", faultOf(f))
	p.field("Message", st.Message)
	p.field("Session", st.Session)
	if o := st.Owned; o != nil {
		p.field("Owned", owned(o))
	}
	if o := st.Overridden; o != nil {
		p.field("Overridden", p.when(&o.DetectedAt)+" by a person, in session "+o.Session)
	}
	p.field("Healthy since", p.when(st.HealthySince))
	if next := next(f); len(next) > 0 {
		p.line("")
		p.line("%s", p.paint(terminal.Bold, "Next steps"))
		for _, line := range next {
			p.line("  %s", terminal.Clean(line))
		}
	}
}

// owned is what of a node is ours.
func owned(o *v1alpha1.Owned) string {
	var parts []string
	if o.Cordon {
		parts = append(parts, "cordon")
	}
	for _, t := range o.Taints {
		parts = append(parts, "taint "+taint(t))
	}
	return strings.Join(parts, ", ")
}

func taint(t corev1.Taint) string {
	text := t.Key
	if t.Value != "" {
		text += "=" + t.Value
	}
	return text + ":" + string(t.Effect)
}

// style is how a phase stands out.
func style(p v1alpha1.Phase) terminal.Style {
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

// next is what a person can do about a node as it stands.
func next(f *v1alpha1.NodeFault) []string {
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
			return []string{"Some pods cannot be evicted: add capacity for them, or relax their PodDisruptionBudgets.", release + ", and ends the drain"}
		}
		return []string{release + ", and ends the drain"}
	case v1alpha1.PhaseQuarantined, v1alpha1.PhaseRemediating:
		return []string{release}
	}
	return nil
}

func (p *page) faults(list []v1alpha1.Fault) {
	rows := [][]string{{"SOURCE", "CHECK", "ENTITY", "CODES", "FATAL", "AGE", "MESSAGE"}}
	for _, f := range list {
		fatal := "no"
		if f.Fatal {
			fatal = "yes"
		}
		rows = append(rows, []string{
			f.Source, f.Check, f.Entity, strings.Join(f.ErrorCodes, ","), fatal, terminal.Since(p.now, f.DetectedAt.Time), oneLine(f.Message),
		})
	}
	p.section("Faults", rows)
}

// oneLine is the first line of a text.
func oneLine(text string) string {
	first, _, _ := strings.Cut(text, "\n")
	return first
}

func (p *page) wish(w *v1alpha1.DesiredActions) {
	if w == nil {
		return
	}
	var parts []string
	for _, part := range []struct {
		wanted bool
		text   string
	}{{w.Cordon, "cordon"}, {w.Drain, "drain"}} {
		if part.wanted {
			parts = append(parts, part.text)
		}
	}
	for _, t := range w.Taints {
		parts = append(parts, "taint "+taint(t))
	}
	for _, r := range w.Remedies {
		parts = append(parts, string(r))
	}
	text := cmp.Or(strings.Join(parts, ", "), "nothing")
	if w.DryRun {
		text += " (dry run: reported, not performed)"
	}
	p.line("")
	p.field("Rules", cmp.Or(strings.Join(w.MatchedRules, ", "), "no match"))
	p.field("Desired", text)
}

func (p *page) drain(d *v1alpha1.DrainStatus) {
	if d == nil {
		return
	}
	p.line("")
	text := fmt.Sprintf("%s; pods left: %d, terminating: %d, evicted: %d", strings.ToLower(string(d.State)), d.Remaining, d.Terminating, d.Evicted)
	p.field("Drain", text)
	p.field("Started", p.when(&d.StartedAt))
	if d.FinishedAt == nil {
		p.field("Deadline", p.when(&d.Deadline))
	}
	p.field("Finished", p.when(d.FinishedAt))
	p.field("Message", d.Message)
	rows := [][]string{{"POD", "BLOCKED BY", "MESSAGE"}}
	for _, b := range d.BlockedPods {
		rows = append(rows, []string{b.Pod, b.BlockedBy, oneLine(b.Message)})
	}
	p.section("Blocked pods", rows)
}

func (p *page) remedy(r *v1alpha1.RemediationStatus) {
	if r == nil {
		return
	}
	p.line("")
	p.field("Remedy", fmt.Sprintf("%s, attempt %d, %s", r.Action, r.Attempt, strings.ToLower(string(r.State))))
	if r.ObjectName != "" {
		p.field("Object", r.ObjectKind+" "+r.ObjectName)
	}
	p.field("Started", p.when(&r.StartedAt))
	if r.FinishedAt == nil {
		p.field("Deadline", p.when(&r.Deadline))
	}
	p.field("Finished", p.when(r.FinishedAt))
	p.field("Message", r.Message)
}

func (p *page) conditions(list []metav1.Condition) {
	rows := [][]string{{"CONDITION", "STATUS", "AGE", "REASON", "MESSAGE"}}
	for _, c := range list {
		rows = append(rows, []string{c.Type, string(c.Status), terminal.Since(p.now, c.LastTransitionTime.Time), c.Reason, oneLine(c.Message)})
	}
	p.section("Conditions", rows)
}

func (p *page) history(st *v1alpha1.NodeFaultStatus) {
	rows := [][]string{{"TIME", "ACTION", "OUTCOME", "SESSION", "DELIVERED", "REASON"}}
	for _, r := range slices.Backward(st.History) {
		action := r.Action
		if r.DryRun {
			action += " (dry run)"
		}
		why := cmp.Or(r.Reason, strings.Join(r.ErrorCodes, ","), r.Check)
		rows = append(rows, []string{r.At.UTC().Format(time.RFC3339), action, r.Outcome, r.Session, told(st, r), oneLine(why)})
	}
	p.section("History", rows)
}

// told is how many sinks have taken a record, of those that were there then.
func told(st *v1alpha1.NodeFaultStatus, r v1alpha1.Record) string {
	n, owed := 0, 0
	for _, d := range st.SinkDeliveries {
		if d.EnabledAt != nil && r.At.Time.Before(d.EnabledAt.Time) {
			continue
		}
		owed++
		if r.Sequence <= d.ProcessedSequence && !slices.Contains(d.Rejected, r.Sequence) {
			n++
		}
	}
	if owed == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d", n, owed)
}

func (p *page) sinks(st *v1alpha1.NodeFaultStatus) {
	if len(st.SinkDeliveries) == 0 {
		return
	}
	p.section("Sinks of change events", sinkRows(p.now, st))
}
