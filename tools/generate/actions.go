package main

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/fleetloop/fleetloop/internal/execution/action"
)

const aboutActions = `# Actions

The catalogue of actions that an execution can request. Each action runs under its own service account in the namespace of executions. The account has the permissions
that are listed here and no others (` + "`deploy/rbac/actions*.yaml`" + `). An action can change objects only in namespaces where its role is bound.

Parameters are flat: ` + "`parameters: {deployment: web, namespace: shop, replicas: 5}`" + `. You can set ` + "`spec.resourceName`" + ` and
` + "`spec.targetNamespace`" + ` instead of the target's name and namespace; if you set both, they must be equal. Unknown parameters are rejected.

`

// renderActionReference describes the catalogue.
func renderActionReference() ([]byte, error) {
	var buf bytes.Buffer
	buf.WriteString(generated + aboutActions)
	buf.WriteString("| Action | Description | Target | Risk | Rollback | Timeout | Retries |\n|---|---|---|---|---|---|---|\n")
	all := action.Catalogue()
	for _, a := range all {
		fmt.Fprintf(&buf, "| [%s](#%s) | %s | %s | %s | %s | %s | %d |\n",
			a.Name, a.Name, escapeTableCell(a.Summary), escapeTableCell(formatTargetKinds(a)), a.Risk, escapeTableCell(formatRollback(a)), formatDuration(a.Timeout), a.Retries)
	}
	for _, a := range all {
		writeActionSection(&buf, a)
	}
	return buf.Bytes(), nil
}

func writeActionSection(buf *bytes.Buffer, a *action.Action) {
	fmt.Fprintf(buf, "\n## %s\n\n%s\n", a.Name, cutFirstSentence(a.Summary))
	if a.Kubectl != "" {
		fmt.Fprintf(buf, "\n    %s\n", a.Kubectl)
	}
	buf.WriteString("\n| | |\n|---|---|\n")
	row := func(name, text string) { fmt.Fprintf(buf, "| %s | %s |\n", name, escapeTableCell(text)) }
	if len(a.Aliases) > 0 {
		row("Aliases", formatQuotedList(a.Aliases))
	}
	row("Target", formatTargetKinds(a))
	row("Service account", formatAccount(a))
	row("Risk", string(a.Risk))
	row("Rollback", formatRollback(a))
	row("Timeout", fmt.Sprintf("%s, at most %s", formatDuration(a.Timeout), formatDuration(a.MaxTimeout)))
	row("Retries", formatRetry(a))

	buf.WriteString("\n| Parameter | Type | Default | Description |\n|---|---|---|---|\n")
	for _, p := range a.Parameters() {
		fmt.Fprintf(
			buf,
			"| %s | %s | %s | %s |\n",
			formatCodeSpan(p.Name),
			p.Type,
			formatRequiredOrDefault(p),
			escapeTableCell(formatParameterDescription(p)),
		)
	}
	if len(a.Permissions) == 0 {
		return
	}
	buf.WriteString("\n| Verbs | Resource | Scope | Purpose |\n|---|---|---|---|\n")
	for _, p := range a.Permissions {
		resource := strings.TrimPrefix(p.Group+"/"+p.Resource, "/")
		if p.Subresource != "" {
			resource += "/" + p.Subresource
		}
		fmt.Fprintf(buf, "| %s | %s | %s | %s |\n",
			strings.Join(p.Verbs, ", "), formatCodeSpan(resource), formatPermissionScope(p), escapeTableCell(p.Why))
	}
}

func formatTargetKinds(a *action.Action) string {
	if len(a.Kinds) > 0 {
		return strings.Join(a.Kinds, ", ")
	}
	if a.NoJob {
		return "none"
	}
	return "kinds that the installation allows"
}

func formatAccount(a *action.Action) string {
	if a.NoJob {
		return "none: it has no Job"
	}
	return formatCodeSpan(a.ServiceAccount())
}

func formatRollback(a *action.Action) string {
	switch {
	case a.ReadOnly:
		return "read-only"
	case !a.Reversible:
		return "none"
	}
	return a.Rollback
}

func formatRetry(a *action.Action) string {
	if !a.Idempotent {
		return "none: the action is not idempotent"
	}
	return fmt.Sprint(a.Retries)
}

// formatRequiredOrDefault returns "required" or the default of a parameter.
func formatRequiredOrDefault(p action.Parameter) string {
	switch {
	case p.Required:
		return "required"
	case p.Default != "":
		return formatCodeSpan(p.Default)
	}
	return ""
}

// formatParameterDescription returns the description of a parameter with its allowed values.
func formatParameterDescription(p action.Parameter) string {
	text := cutFirstSentence(p.Doc)
	if len(p.Enum) > 0 {
		text += " One of " + formatQuotedList(p.Enum) + "."
	}
	switch {
	case p.Minimum != nil && p.Maximum != nil:
		text += fmt.Sprintf(" From %d to %d.", *p.Minimum, *p.Maximum)
	case p.Minimum != nil:
		text += fmt.Sprintf(" At least %d.", *p.Minimum)
	case p.Maximum != nil:
		text += fmt.Sprintf(" At most %d.", *p.Maximum)
	}
	return text
}

func formatPermissionScope(p action.Permission) string {
	switch {
	case p.Executor:
		return "namespace of executions"
	case p.ClusterScoped:
		return "cluster"
	}
	return "namespace of the target"
}

func cutFirstSentence(text string) string { return strings.TrimSuffix(text, ".") + "." }

func escapeTableCell(text string) string { return strings.ReplaceAll(text, "|", "\\|") }

func formatQuotedList(words []string) string {
	list := make([]string, 0, len(words))
	for _, w := range words {
		list = append(list, formatCodeSpan(w))
	}
	return strings.Join(list, ", ")
}

// formatDuration returns a duration in its usual notation: 5m instead of 5m0s.
func formatDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
