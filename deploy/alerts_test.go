// Package deploy_test checks what is shipped beside the binaries.
package deploy_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

type rules struct {
	Groups []struct {
		Rules []struct {
			Alert       string            `yaml:"alert"`
			Expr        string            `yaml:"expr"`
			For         string            `yaml:"for"`
			Labels      map[string]string `yaml:"labels"`
			Annotations map[string]string `yaml:"annotations"`
		} `yaml:"rules"`
	} `yaml:"groups"`
}

func newFile(t *testing.T, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestAlerts: an alert that wakes somebody asks for a metric that exists, and
// says what to do.
func TestAlerts(t *testing.T) {
	paths, err := filepath.Glob("prometheus/*.rules.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("there are no rules: %v", err)
	}
	var file rules
	for _, path := range paths {
		var one rules
		if err := yaml.Unmarshal(newFile(t, path), &one); err != nil {
			t.Fatal(err)
		}
		file.Groups = append(file.Groups, one.Groups...)
	}
	reference := string(newFile(t, "../docs/reference/metrics.md"))
	kept := regexp.MustCompile(`by \(([a-z_, ]+)\)`)
	metric := regexp.MustCompile(`\b(hyperfleet|fleetloop|nvsentinel|kubernetesexecution|kubernetes_executor)_[a-z_]+\b`)

	table := string(newFile(t, "../docs/reference/alerts.md"))
	rows := regexp.MustCompile(`(?m)^\| \[[^|]* \| (?:critical|warning) \|`).FindAllString(table, -1)

	pages := map[string]bool{}
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			t.Run(rule.Alert, func(t *testing.T) {
				found := metric.FindAllString(rule.Expr, -1)
				if len(found) == 0 {
					t.Errorf("asks for no metric of ours: %s", rule.Expr)
				}
				for _, name := range found {
					if !strings.Contains(reference, "| `"+strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count")+"` |") {
						t.Errorf("asks for %s, which is not in docs/reference/metrics.md", name)
					}
				}
				for _, m := range kept.FindAllStringSubmatch(rule.Expr, -1) {
					for label := range strings.SplitSeq(m[1], ", ") {
						// Prometheus itself adds those of a target, and le.
						if !slices.Contains([]string{"namespace", "job", "instance", "le"}, label) && !strings.Contains(reference, "`"+label+"`") {
							t.Errorf("keeps the label %s, which docs/reference/metrics.md does not know", label)
						}
					}
				}
				if s := rule.Labels["severity"]; s != "critical" && s != "warning" {
					t.Errorf("severity is %q, want critical or warning", s)
				}
				if rule.Annotations["summary"] == "" {
					t.Error("has no summary")
				}
				want := "docs/runbooks/" + rule.Alert + ".md"
				if got := rule.Annotations["runbook_url"]; got != want {
					t.Errorf("runbook_url is %q, want %q", got, want)
				}
				newFile(t, filepath.Join("..", want))
				pages[rule.Alert+".md"] = true
				row := "\n| [" + rule.Alert + "](../runbooks/" + rule.Alert + ".md) | " + rule.Labels["severity"] + " | " + rule.For + " | "
				if !strings.Contains(table, row) {
					t.Errorf("docs/reference/alerts.md has no row that begins with %q", strings.TrimSpace(row))
				}
			})
		}
	}
	if len(rows) != len(pages) {
		t.Errorf("docs/reference/alerts.md has %d rows for %d alerts", len(rows), len(pages))
	}
	entries, err := os.ReadDir("../docs/runbooks")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !pages[e.Name()] {
			t.Errorf("docs/runbooks/%s belongs to no alert", e.Name())
		}
	}
}
