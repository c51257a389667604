package execcli

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
	"github.com/fleetloop/fleetloop/internal/kube/executions"
)

// WriteDescription writes a full description of an execution: first its state and the next steps,
// then its history.
func WriteDescription(w io.Writer, ke *v1alpha1.KubernetesExecution, o OutputOptions) error {
	p := &page{w: w, o: o}
	p.writeRequestFields(ke)
	p.writeAdvice(ke)
	p.writePhases(ke)
	p.writePlan(ke.Status.Plan)
	p.writePolicy(ke.Status.ValidationResults)
	p.writeChecks(ke)
	p.writeApprovals(ke)
	p.writeResult(ke)
	p.writeRollback(ke)
	p.writeConditions(ke.Status.Conditions)
	return p.err
}

func (p *page) writeRequestFields(ke *v1alpha1.KubernetesExecution) {
	spec := &ke.Spec
	p.writeField("Name", ke.Name)
	p.writeField("Namespace", ke.Namespace)
	p.writeField("Action", spec.Action)
	p.writeField("Target", cmp.Or(executions.FormatTarget(ke), "unknown"))
	p.writeField("Parameters", cmp.Or(FormatParameters(spec.Parameters), "none"))
	by := ""
	if spec.RequestedBy != "" {
		by = ", by " + spec.RequestedBy
	}
	p.writeField("Requested", p.formatTimeAndAge(ke.CreationTimestamp.Time)+by)
	optional := []struct{ name, value string }{
		{"Assistant", formatAgent(spec)},
		{"Reason", spec.Reason},
		{"Environment", spec.Environment},
		{"Correlation", spec.CorrelationID},
		{"Rollback of", formatNamespacedName(spec.RollbackOf)},
		{"Remediation", formatNamespacedName(spec.RemediationRequestRef)},
		{"Workflow", formatWorkflow(spec)},
	}
	for _, f := range optional {
		if f.value != "" {
			p.writeField(f.name, f.value)
		}
	}
	if spec.DryRunMode == v1alpha1.DryRunOnly {
		p.writeField("Dry run", "only, changes nothing")
	}
	p.writeStyledField("Phase", p.formatPhase(ke), PhaseStyle(ke))
	if ke.Status.Outcome != "" {
		p.writeField("Outcome", string(ke.Status.Outcome))
	}
	if ke.DeletionTimestamp != nil {
		p.writeField("Deleted", p.formatTimeAndAge(ke.DeletionTimestamp.Time)+", retained until the audit is written")
	}
}

// formatAgent returns the assistant that made the request, with its user.
func formatAgent(spec *v1alpha1.KubernetesExecutionSpec) string {
	if spec.RequestedByAgent == "" || spec.RequestedBy == "" {
		return spec.RequestedByAgent
	}
	return spec.RequestedByAgent + ", for " + spec.RequestedBy
}

func formatNamespacedName(r *v1alpha1.ObjectReference) string {
	if r == nil {
		return ""
	}
	if r.Namespace == "" {
		return r.Name
	}
	return r.Namespace + "/" + r.Name
}

func formatWorkflow(spec *v1alpha1.KubernetesExecutionSpec) string {
	text := formatNamespacedName(spec.WorkflowExecutionRef)
	if spec.StepNumber != nil {
		text = strings.TrimSpace(fmt.Sprintf("%s step %d", text, *spec.StepNumber))
	}
	return text
}

// formatPhase returns the phase with its reason.
func (p *page) formatPhase(ke *v1alpha1.KubernetesExecution) string {
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

// writeAdvice writes what the execution waits for and the next steps.
func (p *page) writeAdvice(ke *v1alpha1.KubernetesExecution) {
	p.writeLine("")
	p.writeLine("Next steps:")
	if ke.Status.Message != "" {
		p.writeBlock("  ", ke.Status.Message)
	}
	next := Advise(ke, p.o)
	for _, text := range next.Says {
		p.writeBlock("  ", text)
	}
	var rows [][]terminal.Cell
	for _, d := range next.Do {
		rows = append(rows, terminal.PlainRow(d.Command, d.What))
	}
	p.writeTable("    ", rows)
}

func (p *page) writePhases(ke *v1alpha1.KubernetesExecution) {
	list := ke.Status.PhaseTransitions
	if len(list) == 0 {
		return
	}
	p.writeLine("")
	p.writeLine("Phases:")
	rows := [][]terminal.Cell{terminal.PlainRow("PHASE", "AT", "TOOK")}
	for i, t := range list {
		took := ""
		if i+1 < len(list) {
			took = formatRoundedDuration(list[i+1].At.Sub(t.At.Time))
		}
		rows = append(rows, terminal.PlainRow(string(t.Phase), t.At.UTC().Format("2006-01-02T15:04:05.000Z"), took))
	}
	p.writeTable("  ", rows)
}

// formatRoundedDuration formats a duration, exactly if it is short.
func formatRoundedDuration(d time.Duration) string {
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

func (p *page) writePolicy(v *v1alpha1.ValidationResults) {
	if v == nil || v.PolicyValidation == nil {
		return
	}
	d := v.PolicyValidation
	p.writeLine("")
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
	p.writeStyledField("Policy", verdict, style)
	for _, text := range d.Violations {
		p.writeBlock("  ", "violation: "+text)
	}
	for _, text := range d.Warnings {
		p.writeBlock("  ", "warning: "+text)
	}
	var wants []string
	if d.RequiredDryRun {
		wants = append(wants, "dry run")
	}
	if d.RequiredApproval {
		wants = append(wants, "approval")
	}
	if len(wants) > 0 {
		p.writeLine("  requires %s", strings.Join(wants, " and "))
	}
	if d.PolicyHash != "" {
		p.writeBlock("  ", "policy hash "+executions.ShortHash(d.PolicyHash)+formatEvaluationTime(p, d.EvaluatedAt))
	}
}

func formatEvaluationTime(p *page, t *metav1.Time) string {
	if t == nil {
		return ""
	}
	return ", evaluated " + p.formatTimeAndAge(t.Time)
}

func (p *page) writeChecks(ke *v1alpha1.KubernetesExecution) {
	v := ke.Status.ValidationResults
	if v == nil {
		return
	}
	p.writeLine("")
	p.writeLine("Checks:")
	p.writeTable("  ", [][]terminal.Cell{
		checkRow("parameters", v.ParameterValidation),
		checkRow("permissions", v.RBACValidation),
		checkRow("target", v.ResourceExists),
	})
	if d := v.DryRunResults; d != nil {
		p.writeDryRunOutcome(d)
	}
	p.writeConditionResults("Preconditions", v.PreConditionResults)
	p.writeConditionResults("Postconditions", v.PostConditionResults)
}

func checkRow(what string, passed bool) []terminal.Cell {
	if passed {
		return []terminal.Cell{{Text: what}, {Text: "passed", Style: terminal.Good}}
	}
	return []terminal.Cell{{Text: what}, {Text: "failed", Style: terminal.Bad}}
}

func (p *page) writeDryRunOutcome(d *v1alpha1.DryRunResults) {
	switch {
	case !d.Performed:
		p.writeLine("  dry run: not performed")
	case d.Success:
		p.writeLine("  dry run: passed")
	default:
		p.writeLine("  dry run: failed")
	}
	for _, text := range d.Errors {
		p.writeBlock("    ", "error: "+text)
	}
	for _, text := range d.Warnings {
		p.writeBlock("    ", "warning: "+text)
	}
}

func (p *page) writeConditionResults(title string, list []v1alpha1.ConditionResult) {
	if len(list) == 0 {
		return
	}
	p.writeLine("  %s:", title)
	rows := [][]terminal.Cell{terminal.PlainRow("TYPE", "RESULT", "REQUIRED", "EVALUATIONS", "AT", "MESSAGE")}
	for _, c := range list {
		result := terminal.Cell{Text: "failed", Style: terminal.Bad}
		switch {
		case !c.Evaluated:
			result = terminal.Cell{Text: "not evaluated", Style: terminal.Faint}
		case c.Passed:
			result = terminal.Cell{Text: "passed", Style: terminal.Good}
		}
		at := ""
		if c.EvaluationTime != nil {
			at = c.EvaluationTime.UTC().Format(time.RFC3339)
		}
		rows = append(rows, []terminal.Cell{
			{Text: c.ConditionType},
			result,
			{Text: yesNo(c.Required)},
			{Text: fmt.Sprint(c.Attempts)},
			{Text: at},
			{Text: c.ErrorMessage},
		})
	}
	p.writeTable("    ", rows)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func (p *page) writeConditions(list []metav1.Condition) {
	if len(list) == 0 {
		return
	}
	p.writeLine("")
	p.writeLine("Conditions:")
	rows := [][]terminal.Cell{terminal.PlainRow("TYPE", "STATUS", "SINCE", "REASON", "MESSAGE")}
	for _, c := range list {
		since := terminal.Since(p.o.Now, c.LastTransitionTime.Time)
		rows = append(rows, terminal.PlainRow(c.Type, string(c.Status), since, c.Reason, c.Message))
	}
	p.writeTable("  ", rows)
}

// FormatParameters formats parameters in the syntax of the command line.
func FormatParameters(raw *runtime.RawExtension) string {
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
		list = append(list, key+"="+formatShellValue(fields[key]))
	}
	return strings.Join(list, " ")
}

func formatShellValue(v any) string {
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
