package execcli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/fleetloop/fleetloop/internal/app/terminal"
	"github.com/fleetloop/fleetloop/internal/execution/action"
)

// WriteActions writes the catalogue as a table. A wide one has more columns.
func WriteActions(w io.Writer, list []*action.Action, wide bool, o OutputOptions) error {
	p := &page{w: w, o: o}
	var rows [][]terminal.Cell
	if !o.NoHeaders {
		heads := terminal.PlainRow("NAME", "RISK", "ROLLBACK")
		if wide {
			heads = append(heads, terminal.PlainRow("KINDS", "TIMEOUT", "RETRIES", "SERVICE ACCOUNT")...)
		}
		rows = append(rows, append(heads, terminal.Cell{Text: "SUMMARY"}))
	}
	for _, a := range list {
		cells := []terminal.Cell{
			{Text: a.Name},
			{Text: string(a.Risk), Style: riskStyle(a.Risk)},
			{Text: formatRollback(a)},
		}
		if wide {
			cells = append(cells, terminal.PlainRow(
				strings.Join(a.Kinds, ","),
				formatDurationWithoutZeroUnits(a.Timeout),
				fmt.Sprint(a.Retries),
				accountNameOrEmpty(a),
			)...)
		}
		rows = append(rows, append(cells, terminal.Cell{Text: a.Summary}))
	}
	p.writeTable("", rows)
	return p.err
}

func riskStyle(r action.Risk) terminal.Style {
	switch r {
	case action.RiskHigh, action.RiskCritical:
		return terminal.Bad
	case action.RiskMedium:
		return terminal.Busy
	case action.RiskLow:
	}
	return terminal.Plain
}

func formatRollback(a *action.Action) string {
	switch {
	case a.ReadOnly || a.NoJob:
		return "not needed"
	case !a.Reversible:
		return "none"
	}
	return cmp.Or(a.Rollback, "yes")
}

func accountNameOrEmpty(a *action.Action) string {
	if a.NoJob {
		return ""
	}
	return a.ServiceAccount()
}

// formatDurationWithoutZeroUnits formats a duration without trailing zero units.
func formatDurationWithoutZeroUnits(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// WriteActionDescription writes a full description of one action.
func WriteActionDescription(w io.Writer, a *action.Action, o OutputOptions) error {
	p := &page{w: w, o: o}
	p.writeField("Name", a.Name)
	p.writeField("Description", a.Summary)
	optional := []struct{ name, value string }{
		{"kubectl", a.Kubectl},
		{"Aliases", strings.Join(a.Aliases, ", ")},
		{"Targets", strings.Join(a.Kinds, ", ")},
	}
	for _, f := range optional {
		if f.value != "" {
			p.writeField(f.name, f.value)
		}
	}
	p.writeStyledField("Risk", string(a.Risk), riskStyle(a.Risk))
	p.writeField("Rollback", formatRollback(a))
	p.writeField(
		"Timeout",
		fmt.Sprintf("%s, at most %s", formatDurationWithoutZeroUnits(a.Timeout), formatDurationWithoutZeroUnits(a.MaxTimeout)),
	)
	p.writeField("Retries", fmt.Sprintf("%d", a.Retries))
	if name := accountNameOrEmpty(a); name != "" {
		p.writeField("Runs as", name)
	}
	p.writeLine("")
	writeParameters(p, a.Parameters())
	if len(a.Permissions) == 0 {
		return p.err
	}
	p.writeLine("")
	p.writeLine("Permissions of the service account:")
	rows := [][]terminal.Cell{terminal.PlainRow("RESOURCE", "VERBS", "SCOPE", "PURPOSE")}
	for _, permission := range a.Permissions {
		resource := permission.Resource
		if permission.Group != "" {
			resource += "." + permission.Group
		}
		if permission.Subresource != "" {
			resource += "/" + permission.Subresource
		}
		scope := "namespace of the target"
		switch {
		case permission.Executor:
			scope = "namespace of the executions"
		case permission.ClusterScoped:
			scope = "cluster"
		}
		verbs := strings.Join(permission.Verbs, ",")
		rows = append(rows, terminal.PlainRow(resource, verbs, scope, permission.Why))
	}
	p.writeTable("  ", rows)
	return p.err
}

func writeParameters(p *page, list []action.Parameter) {
	if len(list) == 0 {
		p.writeLine("No parameters.")
		return
	}
	p.writeLine("Parameters:")
	rows := [][]terminal.Cell{terminal.PlainRow("NAME", "TYPE", "REQUIRED", "DEFAULT", "DESCRIPTION")}
	for _, m := range list {
		rows = append(rows, terminal.PlainRow(m.Name, formatParameterType(m), yesNo(m.Required), m.Default, m.Doc))
	}
	p.writeTable("  ", rows)
}

// formatParameterType returns the type of a parameter with its bounds.
func formatParameterType(m action.Parameter) string {
	switch {
	case len(m.Enum) > 0:
		return strings.Join(m.Enum, "|")
	case m.Minimum != nil && m.Maximum != nil:
		return fmt.Sprintf("%s %d..%d", m.Type, *m.Minimum, *m.Maximum)
	case m.Minimum != nil:
		return fmt.Sprintf("%s from %d", m.Type, *m.Minimum)
	case m.Maximum != nil:
		return fmt.Sprintf("%s to %d", m.Type, *m.Maximum)
	case m.Format != "":
		return m.Type + " (" + m.Format + ")"
	}
	return m.Type
}

// actionEntry is the machine-readable form of an action.
type actionEntry struct {
	Name           string           `json:"name"`
	Summary        string           `json:"summary"`
	Kubectl        string           `json:"kubectl,omitempty"`
	Aliases        []string         `json:"aliases,omitempty"`
	Kinds          []string         `json:"kinds,omitempty"`
	Scope          string           `json:"scope"`
	Risk           string           `json:"risk"`
	Idempotent     bool             `json:"idempotent"`
	Reversible     bool             `json:"reversible"`
	ReadOnly       bool             `json:"readOnly"`
	Rollback       string           `json:"rollback,omitempty"`
	Timeout        string           `json:"timeout"`
	MaxTimeout     string           `json:"maxTimeout"`
	Retries        int32            `json:"retries"`
	ServiceAccount string           `json:"serviceAccount,omitempty"`
	Parameters     []parameterEntry `json:"parameters"`
}

type parameterEntry struct {
	Name     string          `json:"name"`
	Type     string          `json:"type"`
	Required bool            `json:"required"`
	Default  json.RawMessage `json:"default,omitempty"`
	Doc      string          `json:"doc,omitempty"`
	Enum     []string        `json:"enum,omitempty"`
	Minimum  *int64          `json:"minimum,omitempty"`
	Maximum  *int64          `json:"maximum,omitempty"`
	Format   string          `json:"format,omitempty"`
}

// CatalogueValue returns the machine-readable catalogue. Single returns the one action as an object
// instead of a list.
func CatalogueValue(list []*action.Action, single bool) any {
	entries := []actionEntry{}
	for _, a := range list {
		e := actionEntry{
			Name:           a.Name,
			Summary:        a.Summary,
			Kubectl:        a.Kubectl,
			Aliases:        a.Aliases,
			Kinds:          a.Kinds,
			Scope:          string(a.Scope),
			Risk:           string(a.Risk),
			Idempotent:     a.Idempotent,
			Reversible:     a.Reversible,
			ReadOnly:       a.ReadOnly,
			Rollback:       a.Rollback,
			Timeout:        a.Timeout.String(),
			MaxTimeout:     a.MaxTimeout.String(),
			Retries:        a.Retries,
			ServiceAccount: accountNameOrEmpty(a),
			Parameters:     []parameterEntry{},
		}
		for _, parameter := range a.Parameters() {
			e.Parameters = append(e.Parameters, parameterEntry{
				Name:     parameter.Name,
				Type:     parameter.Type,
				Required: parameter.Required,
				Default:  json.RawMessage(parameter.Default),
				Doc:      parameter.Doc,
				Enum:     parameter.Enum,
				Minimum:  parameter.Minimum,
				Maximum:  parameter.Maximum,
				Format:   parameter.Format,
			})
		}
		entries = append(entries, e)
	}
	if single {
		return entries[0]
	}
	return map[string]any{"items": entries}
}
