package show

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
)

// Describe writes all there is to tell about an execution: first what it is and
// what is to be done about it now, then how it came to that.
func Describe(w io.Writer, ke *v1alpha1.KubernetesExecution, o Options) error {
	p := &page{w: w, o: o}
	p.head(ke)
	p.now(ke)
	p.phases(ke)
	p.plan(ke.Status.Plan)
	p.policy(ke.Status.ValidationResults)
	p.checks(ke)
	p.approvals(ke)
	p.result(ke)
	p.wayBack(ke)
	p.conditions(ke.Status.Conditions)
	return p.err
}

func (p *page) head(ke *v1alpha1.KubernetesExecution) {
	spec := &ke.Spec
	p.field("Name", ke.Name)
	p.field("Namespace", ke.Namespace)
	p.field("Action", spec.Action)
	p.field("Target", cmp.Or(Target(ke), "unknown"))
	p.field("Parameters", cmp.Or(Parameters(spec.Parameters), "none"))
	by := ""
	if spec.RequestedBy != "" {
		by = ", by " + spec.RequestedBy
	}
	p.field("Requested", p.when(ke.CreationTimestamp.Time)+by)
	for _, f := range []struct{ name, value string }{
		{"Reason", spec.Reason},
		{"Environment", spec.Environment},
		{"Correlation", spec.CorrelationID},
		{"Rollback of", reference(spec.RollbackOf)},
		{"Remediation", reference(spec.RemediationRequestRef)},
		{"Workflow", workflow(spec)},
	} {
		if f.value != "" {
			p.field(f.name, f.value)
		}
	}
	if spec.DryRunMode == v1alpha1.DryRunOnly {
		p.field("Dry run", "only, changes nothing")
	}
	p.styled("Phase", p.phase(ke), PhaseStyle(ke))
	if ke.Status.Outcome != "" {
		p.field("Outcome", string(ke.Status.Outcome))
	}
	if ke.DeletionTimestamp != nil {
		p.field("Deleted", p.when(ke.DeletionTimestamp.Time)+", retained until the audit is written")
	}
}

func reference(r *v1alpha1.ObjectReference) string {
	if r == nil {
		return ""
	}
	if r.Namespace == "" {
		return r.Name
	}
	return r.Namespace + "/" + r.Name
}

func workflow(spec *v1alpha1.KubernetesExecutionSpec) string {
	text := reference(spec.WorkflowExecutionRef)
	if spec.StepNumber != nil {
		text = strings.TrimSpace(fmt.Sprintf("%s step %d", text, *spec.StepNumber))
	}
	return text
}

// phase is the phase with why.
func (p *page) phase(ke *v1alpha1.KubernetesExecution) string {
	s := &ke.Status
	text := cmp.Or(string(s.Phase), "new")
	if n := len(s.PhaseTransitions); n > 0 {
		text += fmt.Sprintf(" since %s", terminal.Since(p.o.Now, s.PhaseTransitions[n-1].At.Time))
	}
	var why []string
	if s.Reason != "" {
		why = append(why, string(s.Reason))
	}
	if d := string(s.ReasonDetail); d != "" && d != string(s.Reason) {
		why = append(why, d)
	}
	if len(why) > 0 {
		text += ": " + strings.Join(why, ", ")
	}
	return text
}

// now says what the execution waits for, and what to do.
func (p *page) now(ke *v1alpha1.KubernetesExecution) {
	p.line("")
	p.line("Next steps:")
	if ke.Status.Message != "" {
		p.block("  ", ke.Status.Message)
	}
	next := Next(ke, p.o)
	for _, text := range next.Says {
		p.block("  ", text)
	}
	var rows [][]cell
	for _, d := range next.Do {
		rows = append(rows, plain(d.Command, d.What))
	}
	p.table("    ", rows)
}

func (p *page) phases(ke *v1alpha1.KubernetesExecution) {
	list := ke.Status.PhaseTransitions
	if len(list) == 0 {
		return
	}
	p.line("")
	p.line("Phases:")
	rows := [][]cell{plain("PHASE", "AT", "TOOK")}
	for i, t := range list {
		took := ""
		if i+1 < len(list) {
			took = span(list[i+1].At.Sub(t.At.Time))
		}
		rows = append(rows, plain(string(t.Phase), t.At.UTC().Format("2006-01-02T15:04:05.000Z"), took))
	}
	p.table("  ", rows)
}

// span is how long something took, exactly while that is short.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return terminal.Age(d)
}

func (p *page) policy(v *v1alpha1.ValidationResults) {
	if v == nil || v.PolicyValidation == nil {
		return
	}
	d := v.PolicyValidation
	p.line("")
	verdict, style := "denied", terminal.Bad
	if d.Allowed {
		verdict, style = "allowed", terminal.Good
	}
	if d.PolicyName != "" {
		verdict += " by " + d.PolicyName
	}
	if d.Mode != "" && d.Mode != "enforce" {
		verdict += fmt.Sprintf(" (mode %s: violations are not enforced)", d.Mode)
	}
	p.styled("Policy", verdict, style)
	for _, text := range d.Violations {
		p.block("  ", "violation: "+text)
	}
	for _, text := range d.Warnings {
		p.block("  ", "warning: "+text)
	}
	var wants []string
	if d.RequiredDryRun {
		wants = append(wants, "dry run")
	}
	if d.RequiredApproval {
		wants = append(wants, "approval")
	}
	if len(wants) > 0 {
		p.line("  requires %s", strings.Join(wants, " and "))
	}
	if d.PolicyHash != "" {
		p.block("  ", "policy hash "+Short(d.PolicyHash)+evaluated(p, d.EvaluatedAt))
	}
}

func evaluated(p *page, t *metav1.Time) string {
	if t == nil {
		return ""
	}
	return ", evaluated " + p.when(t.Time)
}

func (p *page) checks(ke *v1alpha1.KubernetesExecution) {
	v := ke.Status.ValidationResults
	if v == nil {
		return
	}
	p.line("")
	p.line("Checks:")
	p.table("  ", [][]cell{
		verdict("parameters", v.ParameterValidation),
		verdict("permissions", v.RBACValidation),
		verdict("target", v.ResourceExists),
	})
	if d := v.DryRunResults; d != nil {
		p.dryRun(d)
	}
	p.conditionResults("Preconditions", v.PreConditionResults)
	p.conditionResults("Postconditions", v.PostConditionResults)
}

func verdict(what string, passed bool) []cell {
	if passed {
		return []cell{{text: what}, {text: "passed", style: terminal.Good}}
	}
	return []cell{{text: what}, {text: "failed", style: terminal.Bad}}
}

func (p *page) dryRun(d *v1alpha1.DryRunResults) {
	switch {
	case !d.Performed:
		p.line("  dry run: not performed")
	case d.Success:
		p.line("  dry run: passed")
	default:
		p.line("  dry run: failed")
	}
	for _, text := range d.Errors {
		p.block("    ", "error: "+text)
	}
	for _, text := range d.Warnings {
		p.block("    ", "warning: "+text)
	}
}

func (p *page) conditionResults(title string, list []v1alpha1.ConditionResult) {
	if len(list) == 0 {
		return
	}
	p.line("  %s:", title)
	rows := [][]cell{plain("TYPE", "RESULT", "REQUIRED", "EVALUATIONS", "AT", "MESSAGE")}
	for _, c := range list {
		result := cell{text: "failed", style: terminal.Bad}
		switch {
		case !c.Evaluated:
			result = cell{text: "not evaluated", style: terminal.Faint}
		case c.Passed:
			result = cell{text: "passed", style: terminal.Good}
		}
		at := ""
		if c.EvaluationTime != nil {
			at = c.EvaluationTime.UTC().Format(time.RFC3339)
		}
		r := append(plain(c.ConditionType), result)
		rows = append(rows, append(r, plain(yesNo(c.Required), fmt.Sprint(c.Attempts), at, c.ErrorMessage)...))
	}
	p.table("    ", rows)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func (p *page) conditions(list []metav1.Condition) {
	if len(list) == 0 {
		return
	}
	p.line("")
	p.line("Conditions:")
	rows := [][]cell{plain("TYPE", "STATUS", "SINCE", "REASON", "MESSAGE")}
	for _, c := range list {
		rows = append(rows, plain(c.Type, string(c.Status), terminal.Since(p.o.Now, c.LastTransitionTime.Time), c.Reason, c.Message))
	}
	p.table("  ", rows)
}

// Parameters are parameters as the command line takes them.
func Parameters(raw *runtime.RawExtension) string {
	if raw == nil || len(raw.Raw) == 0 {
		return ""
	}
	dec := json.NewDecoder(bytes.NewReader(raw.Raw))
	dec.UseNumber()
	var fields map[string]any
	if err := dec.Decode(&fields); err != nil {
		return string(raw.Raw)
	}
	var list []string
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		list = append(list, key+"="+value(fields[key]))
	}
	return strings.Join(list, " ")
}

func value(v any) string {
	text, ok := v.(string)
	if !ok {
		raw, err := json.Marshal(v)
		if err != nil {
			return fmt.Sprint(v)
		}
		text = string(raw)
	}
	if text == "" || strings.ContainsAny(text, " \t\n\"'\\$&;|<>()*?{}[]`~#!") {
		return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
	}
	return text
}

// Short is the beginning of a hash, enough to tell it from others.
func Short(hash string) string {
	const enough = 12
	return hash[:min(len(hash), enough)]
}
