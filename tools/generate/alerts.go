package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

const rulesPattern = "deploy/prometheus/*.rules.yaml"

const aboutAlerts = `# Alerts

The alerting rules in [deploy/prometheus](../../deploy/prometheus). The chart installs them with ` + "`monitoring.prometheusRule`" + `.
Each alert links to its runbook. "For" is the time that the condition must hold before the alert fires.

- *critical*: the component does not do its work, or its records cannot be trusted. Act now.
- *warning*: the component works, but slower, partly, or with a fault that needs a person.

In the summaries, ` + "`<value>`" + ` is the value of the expression. Other names in angle brackets are labels.

`

const alertsTogether = `## Alerts that fire together

| Alerts | Likely cause |
|---|---|
`

// ruleFile is one file of alerting rules.
type ruleFile struct {
	Groups []struct {
		Name  string      `json:"name"`
		Rules []alertRule `json:"rules"`
	} `json:"groups"`
}

type alertRule struct {
	Alert       string            `json:"alert"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// listAlertCombinations returns groups of alerts that have one cause when they fire together.
func listAlertCombinations() []struct {
	alerts []string
	cause  string
} {
	return []struct {
		alerts []string
		cause  string
	}{
		{[]string{"SentinelNoSuccessfulPoll", "SentinelAPIErrors"}, "The fleet API is unreachable or fails."},
		{[]string{"SentinelNoSuccessfulPoll", "SentinelBrokerErrors"}, "The broker is unreachable or rejects events."},
		{[]string{"SentinelConfigLoadErrors", "SentinelReplicaFenced"}, "The Kubernetes API server is unreachable."},
		{[]string{"ClusterWorkerClusterCountFailing", "FleetAPIErrors"}, "The database is down or overloaded."},
		{[]string{"ClusterWorkerGardenerDown", "ClusterWorkerShootWatchErrors"}, "Gardener, or the network path to it, is down."},
		{
			[]string{"ExecutionAuditDelayed", "ExecutionControllerMissing"},
			"The database is down. An execution controller that starts without it is not ready.",
		},
		{[]string{"NodeFaultBudgetExhausted", "NodeFaultStuck"}, "Many nodes share a cause that a reboot does not fix."},
		{[]string{"NodeFaultChangeEventsDelayed", "ChangeEventsFailing"}, "The sink, or the network path to it, is down."},
	}
}

// renderAlertReference describes the alerting rules.
func renderAlertReference() ([]byte, error) {
	paths, err := filepath.Glob(rulesPattern)
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("no file matches %s", rulesPattern)
	}
	var buf bytes.Buffer
	buf.WriteString(generated + aboutAlerts)
	for _, path := range paths {
		raw, err := os.ReadFile(path) //nolint:gosec // a file of the repository
		if err != nil {
			return nil, err
		}
		var file ruleFile
		if err := yaml.Unmarshal(raw, &file); err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		for _, group := range file.Groups {
			fmt.Fprintf(&buf, "## %s\n\nFrom [%s](../../%s).\n\n", group.Name, filepath.Base(path), path)
			buf.WriteString("| Alert | Severity | For | Summary |\n|---|---|---|---|\n")
			for _, rule := range group.Rules {
				fmt.Fprintf(
					&buf,
					"| %s | %s | %s | %s |\n",
					formatRunbookLink(rule.Alert),
					rule.Labels["severity"],
					rule.For,
					formatSummaryCell(rule.Annotations),
				)
			}
			buf.WriteByte('\n')
		}
	}
	buf.WriteString(alertsTogether)
	for _, c := range listAlertCombinations() {
		var links []string
		for _, name := range c.alerts {
			links = append(links, formatRunbookLink(name))
		}
		fmt.Fprintf(&buf, "| %s | %s |\n", strings.Join(links, " and "), c.cause)
	}
	return buf.Bytes(), nil
}

func formatRunbookLink(alert string) string { return "[" + alert + "](../runbooks/" + alert + ".md)" }

// formatSummaryCell returns the summary and the description of an alert with
// placeholders for templates.
func formatSummaryCell(annotations map[string]string) string {
	text := strings.Join(strings.Fields(annotations["summary"]+" "+annotations["description"]), " ")
	text = regexp.MustCompile(`\{\{\s*\$labels\.(\w+)[^}]*\}\}`).ReplaceAllString(text, "<$1>")
	text = regexp.MustCompile(`\{\{[^}]*\$value[^}]*\}\}`).ReplaceAllString(text, "<value>")
	return strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(text)
}
