package execcli

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
	"github.com/fleetloop/fleetloop/internal/kube/executions"
)

// WriteDecisionBasis writes the basis of an approval: the requester, the request and its reason, the
// plan, and the policy result.
func WriteDecisionBasis(w io.Writer, ke *v1alpha1.KubernetesExecution, o OutputOptions) error {
	p := &page{w: w, o: o}
	p.writeRequestFields(ke)
	p.writePlan(ke.Status.Plan)
	p.writePolicy(ke.Status.ValidationResults)
	p.writeChecks(ke)
	p.writeApprovals(ke)
	return p.err
}

// writePlan writes the planned steps and their targets.
func (p *page) writePlan(plan *v1alpha1.Plan) {
	if plan == nil {
		return
	}
	p.writeLine("")
	p.writeField("Plan", plan.Hash)
	target := plan.Target
	name := strings.TrimPrefix(target.Namespace+"/"+target.Name, "/")
	uid := cmp.Or(string(target.UID), "none")
	p.writeBlock("  ", fmt.Sprintf("for %s %s %s, uid %s", target.APIVersion, target.Kind, name, uid))
	if plan.Parameters != nil {
		p.writeBlock("  ", plan.Action+" "+FormatParameters(plan.Parameters))
	}
	p.writeLine("  Steps:")
	var rows [][]terminal.Cell
	for i, s := range plan.Steps {
		rows = append(rows, terminal.PlainRow(fmt.Sprintf("%d.", i+1), formatStep(s), s.Description))
	}
	p.writeTable("    ", rows)
	p.writeLine("  Impact: %s", terminal.ReplaceUnprintable(formatImpact(plan.Impact)))
	if plan.Diff != "" {
		p.writeLine("  Changes:")
		p.writeDiff(plan.Diff)
	}
	if r := plan.Rollback; r != nil && !r.Available {
		p.writeBlock("  ", "Rollback: none"+formatReasonSuffix(r.Reason))
	}
}

func formatReasonSuffix(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

// formatStep returns a step as an RBAC verb and resource.
func formatStep(s v1alpha1.PlanStep) string {
	resource := s.Resource
	if s.Subresource != "" {
		resource += "/" + s.Subresource
	}
	name := s.Name
	if s.Namespace != "" {
		name = s.Namespace + "/" + name
	}
	return strings.Join(strings.Fields(s.Verb+" "+resource+" "+name), " ")
}

func formatImpact(i v1alpha1.EstimatedImpact) string {
	text := fmt.Sprintf("%d objects", i.ResourcesAffected)
	if i.ResourcesAffected == 1 {
		text = "1 object"
	}
	if i.ReplicasChanged != "" {
		text += ", replicas " + i.ReplicasChanged
	}
	if i.Description != "" {
		text += "; " + i.Description
	}
	return text
}

func (p *page) writeDiff(text string) {
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		shown := terminal.ReplaceUnprintable(strings.ReplaceAll(line, "\t", "  "))
		style := terminal.Plain
		switch {
		case strings.HasPrefix(line, "+"):
			style = terminal.Good
		case strings.HasPrefix(line, "-"):
			style = terminal.Bad
		}
		if p.o.Colour {
			shown = style.Paint(shown)
		}
		p.writeLine("    %s", shown)
	}
}

func (p *page) writeApprovals(ke *v1alpha1.KubernetesExecution) {
	a := ke.Status.Approval
	if a == nil || !a.Required && len(ke.Spec.Approvals) == 0 {
		return
	}
	p.writeLine("")
	text := a.State
	if endedUndecided(ke) {
		text = "Undecided"
	}
	if a.Required {
		text += fmt.Sprintf(", %d of %d received", len(listApprovers(a)), requiredApprovals(a))
	}
	p.writeField("Approvals", text)
	if a.RequesterCannotApprove {
		p.writeBlock("  ", "not from "+cmp.Or(ke.Spec.RequestedBy, "the requester"))
	}
	if len(a.Groups) > 0 {
		p.writeBlock("  ", "from members of "+strings.Join(a.Groups, " or "))
	}
	switch {
	case a.DecidedAt != nil:
		p.writeLine("  decided %s", p.formatTimeAndAge(a.DecidedAt.Time))
	case executions.IsSettled(ke): // no more approvals are expected
	case a.Deadline != nil:
		p.writeLine("  deadline %s", p.formatTimeAndAge(a.Deadline.Time))
	case a.Required:
		p.writeLine("  no deadline")
	}
	given := givenApprovals(ke)
	if len(given) == 0 {
		return
	}
	rows := [][]terminal.Cell{terminal.PlainRow("APPROVER", "DECISION", "VALID", "PLAN", "REASON")}
	for _, g := range given {
		rows = append(rows, terminal.PlainRow(
			cmp.Or(g.Approver, "(not named)"),
			string(g.Decision),
			yesNo(g.counts),
			executions.ShortHash(g.PlanHash),
			g.Reason,
		))
	}
	p.writeTable("  ", rows)
}

// endedUndecided reports whether an execution ended before a decision, because it was cancelled or
// was only a dry run.
func endedUndecided(ke *v1alpha1.KubernetesExecution) bool {
	return executions.IsSettled(ke) && ke.Status.Approval != nil && ke.Status.Approval.State == v1alpha1.ApprovalPending
}

// givenApproval is a decision of an approver.
type givenApproval struct {
	v1alpha1.Approval

	counts bool // it is valid for the plan
}

// givenApprovals returns all approvals, including those that do not count.
func givenApprovals(ke *v1alpha1.KubernetesExecution) []givenApproval {
	var list []givenApproval
	counted := map[string]bool{}
	if ke.Status.Approval != nil {
		for _, a := range ke.Status.Approval.CountedDecisions {
			counted[a.Approver] = true
			list = append(list, givenApproval{a, true})
		}
	}
	for _, a := range ke.Spec.Approvals {
		if !counted[a.Approver] {
			list = append(list, givenApproval{a, false})
		}
	}
	return list
}

func listApprovers(a *v1alpha1.ApprovalStatus) []string {
	var list []string
	for _, r := range a.CountedDecisions {
		if r.Decision == v1alpha1.Approve {
			list = append(list, r.Approver)
		}
	}
	return list
}

func requiredApprovals(a *v1alpha1.ApprovalStatus) int {
	return max(1, int(a.RequiredCount))
}

func (p *page) writeResult(ke *v1alpha1.KubernetesExecution) {
	r := ke.Status.ExecutionResults
	if r == nil {
		return
	}
	p.writeLine("")
	text, style := "failed", terminal.Bad
	if r.Success {
		text, style = "succeeded", terminal.Good
	}
	if r.EndTime == nil {
		text, style = "running", terminal.Busy
	}
	if r.Duration != "" {
		text += " in " + r.Duration
	}
	p.writeStyledField("Result", text, style)
	if r.ErrorMessage != "" {
		p.writeBlock("  ", r.ErrorMessage)
	}
	if r.StartTime != nil {
		p.writeLine("  started %s", p.formatTimeAndAge(r.StartTime.Time))
	}
	if r.EndTime != nil {
		p.writeLine("  ended   %s", p.formatTimeAndAge(r.EndTime.Time))
	}
	if r.JobName != "" {
		p.writeBlock("  ", fmt.Sprintf("Job %s/%s%s", ke.Namespace, r.JobName, formatRetriesSuffix(r.RetriesAttempted)))
	}
	if len(r.ResourcesAffected) > 0 {
		rows := [][]terminal.Cell{terminal.PlainRow("OBJECT", "ACTION", "BEFORE", "AFTER")}
		for _, a := range r.ResourcesAffected {
			rows = append(rows, terminal.PlainRow(formatAffectedObject(a), a.Action, a.Before, a.After))
		}
		p.writeTable("  ", rows)
	}
	if more := int(r.ResourcesAffectedCount) - len(r.ResourcesAffected); more > 0 {
		p.writeLine("  and %d more objects", more)
	}
	if r.PodLogs != "" {
		cut := ""
		if r.PodLogsTruncated {
			cut = " (last part)"
		}
		p.writeLine("  Output%s:", cut)
		p.writeBlock("    ", r.PodLogs)
	}
}

// formatAffectedObject returns Kind/namespace/name without the parts that are empty.
func formatAffectedObject(a v1alpha1.AffectedResource) string {
	parts := strings.FieldsFunc(a.Kind+"/"+a.Namespace+"/"+a.Name, func(r rune) bool { return r == '/' })
	return strings.Join(parts, "/")
}

func formatRetriesSuffix(n int32) string {
	switch n {
	case 0:
		return ""
	case 1:
		return ", 1 retry"
	}
	return fmt.Sprintf(", %d retries", n)
}

func (p *page) writeRollback(ke *v1alpha1.KubernetesExecution) {
	r := ke.Status.RollbackInformation
	if r == nil {
		return
	}
	p.writeLine("")
	if !r.Available {
		p.writeField("Rollback", "none"+formatReasonSuffix(r.Reason))
		return
	}
	text := r.RollbackAction + " " + FormatParameters(r.RollbackParameters)
	if r.EstimatedRollbackDuration != "" {
		text += fmt.Sprintf(" (about %s)", r.EstimatedRollbackDuration)
	}
	p.writeField("Rollback", text)
	if r.ExpectedCurrentValues != nil {
		p.writeBlock("  ", "requires that the target still has: "+FormatParameters(r.ExpectedCurrentValues))
	}
	p.writeBlock("  ", p.o.formatCommand("rollback", ke))
}
