package main

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/fleetloop/fleetloop/internal/execution/action"
)

const aboutActions = `# Actions

All that an execution can ask for. Each action runs as an account of its own, in the namespace of executions, with the rights that are named here and no others;
` + "`deploy/rbac/actions*.yaml`" + ` has them. Rights in namespaces are bound namespace by namespace: where an action is not bound, it can do nothing.

Parameters are flat: ` + "`parameters: {deployment: web, namespace: shop, replicas: 5}`" + `. The name and the namespace of the target may be given as
` + "`spec.resourceName`" + ` and ` + "`spec.targetNamespace`" + ` instead; where both are given they must agree. A parameter that is not named here is refused.

`

// actions describes the catalogue.
func actions() ([]byte, error) {
	var buf bytes.Buffer
	buf.WriteString(generated + aboutActions)
	buf.WriteString("| Action | | Acts on | Risk | Way back | Time | Retries |\n|---|---|---|---|---|---|---|\n")
	all := action.Catalogue()
	for _, a := range all {
		fmt.Fprintf(&buf, "| [%s](#%s) | %s | %s | %s | %s | %s | %d |\n",
			a.Name, a.Name, cell(a.Summary), cell(kinds(a)), a.Risk, cell(wayBack(a)), duration(a.Timeout), a.Retries)
	}
	for _, a := range all {
		writeAction(&buf, a)
	}
	return buf.Bytes(), nil
}

func writeAction(buf *bytes.Buffer, a *action.Action) {
	fmt.Fprintf(buf, "\n## %s\n\n%s\n", a.Name, sentence(a.Summary))
	if a.Kubectl != "" {
		fmt.Fprintf(buf, "\n    %s\n", a.Kubectl)
	}
	buf.WriteString("\n| | |\n|---|---|\n")
	row := func(name, text string) { fmt.Fprintf(buf, "| %s | %s |\n", name, cell(text)) }
	if len(a.Aliases) > 0 {
		row("Also called", quotedList(a.Aliases))
	}
	row("Acts on", kinds(a))
	row("Runs as", account(a))
	row("Risk", string(a.Risk))
	row("Way back", wayBack(a))
	row("Time", fmt.Sprintf("%s, at most %s", duration(a.Timeout), duration(a.MaxTimeout)))
	row("Retries", retries(a))

	buf.WriteString("\n| Parameter | Type | | Meaning |\n|---|---|---|---|\n")
	for _, p := range a.Parameters() {
		fmt.Fprintf(buf, "| %s | %s | %s | %s |\n", quoted(p.Name), p.Type, need(p), cell(meaning(p)))
	}
	if len(a.Permissions) == 0 {
		return
	}
	buf.WriteString("\n| Right | On | Where | To |\n|---|---|---|---|\n")
	for _, p := range a.Permissions {
		resource := strings.TrimPrefix(p.Group+"/"+p.Resource, "/")
		if p.Subresource != "" {
			resource += "/" + p.Subresource
		}
		fmt.Fprintf(buf, "| %s | %s | %s | %s |\n", strings.Join(p.Verbs, ", "), quoted(resource), where(p), cell(p.Why))
	}
}

func kinds(a *action.Action) string {
	if len(a.Kinds) > 0 {
		return strings.Join(a.Kinds, ", ")
	}
	if a.NoJob {
		return "nothing"
	}
	return "what the installation allows"
}

func account(a *action.Action) string {
	if a.NoJob {
		return "nobody: there is nothing to run"
	}
	return quoted(a.ServiceAccount())
}

func wayBack(a *action.Action) string {
	switch {
	case a.ReadOnly:
		return "it changes nothing"
	case !a.Reversible:
		return "none"
	}
	return a.Rollback
}

func retries(a *action.Action) string {
	if !a.Idempotent {
		return "none: done twice it would not be the same"
	}
	return fmt.Sprint(a.Retries)
}

// need says whether a parameter must be given, or what it is otherwise.
func need(p action.Parameter) string {
	switch {
	case p.Required:
		return "required"
	case p.Default != "":
		return quoted(p.Default)
	}
	return ""
}

// meaning is what a parameter is for, with what it can be.
func meaning(p action.Parameter) string {
	text := sentence(p.Doc)
	if len(p.Enum) > 0 {
		text += " One of " + quotedList(p.Enum) + "."
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

func where(p action.Permission) string {
	switch {
	case p.Executor:
		return "the namespace of executions"
	case p.ClusterScoped:
		return "the cluster"
	}
	return "the target's namespace"
}

func sentence(text string) string { return strings.TrimSuffix(text, ".") + "." }

func cell(text string) string { return strings.ReplaceAll(text, "|", "\\|") }

func quotedList(words []string) string {
	list := make([]string, 0, len(words))
	for _, w := range words {
		list = append(list, quoted(w))
	}
	return strings.Join(list, ", ")
}

// duration is a time as people write it: 5m rather than 5m0s.
func duration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
