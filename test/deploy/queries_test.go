package deploy_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// ours begins the name of each of our metrics.
const ours = `\b(?:hyperfleet_(?:sentinel|sample_adapter)|fleetloop|nvsentinel|kubernetesexecution|kubernetes_executor)_[a-z_]+`

// quoted are the texts of a page that are set as code, in blocks or in lines.
// Those of a block are its lines.
func quoted(page string) []string {
	var all []string
	fence := regexp.MustCompile("(?ms)^[ \\t]*```[a-z]*\\n(.*?)^[ \\t]*```")
	for _, m := range fence.FindAllStringSubmatch(page, -1) {
		for line := range strings.Lines(m[1]) {
			all = append(all, strings.TrimSpace(line))
		}
	}
	page = fence.ReplaceAllString(page, "")
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "    ") { // a block, or a list's text, which has its code quoted
			all = append(all, strings.TrimSpace(line))
		}
	}
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(page, -1) {
		all = append(all, m[1])
	}
	return all
}

// asks says what is wrong with a text that is set as code: with the metric that it
// names, or with the query that it is. It is no error if it is neither.
func asks(known map[string][]string, text string) (ok bool, err error) {
	name := regexp.MustCompile(ours)
	found := name.FindAllString(text, -1)
	if len(found) == 0 {
		return false, nil
	}
	if found[0] != text {
		return true, check(known, text)
	}
	if _, ok := known[text]; !ok && known[text+"_bucket"] == nil { // people call a histogram by its name
		return true, fmt.Errorf("there is no metric %q", text)
	}
	return true, nil
}

// TestRunbookQueries holds that what a runbook has one ask Prometheus for is a
// query, of metrics and labels that there are, and that there are all the metrics
// that it names.
func TestRunbookQueries(t *testing.T) {
	known := knownMetrics(t)
	paths, err := filepath.Glob(root + "/docs/runbooks/*.md")
	if err != nil || len(paths) == 0 {
		t.Fatalf("there are no runbooks: %v", err)
	}
	names, queries := 0, 0
	for _, path := range paths {
		page := string(readFile(t, path))
		inCode := 0
		for _, text := range quoted(page) {
			ok, err := asks(known, text)
			if err != nil {
				t.Errorf("%s: %v\n%s", filepath.Base(path), err, text)
			}
			if !ok {
				continue
			}
			named := len(regexp.MustCompile(ours).FindAllString(text, -1))
			inCode += named
			if strings.ContainsAny(text, "({") {
				queries++
			} else {
				names++
			}
		}
		if all := len(regexp.MustCompile(ours).FindAllString(page, -1)); all != inCode {
			t.Errorf("%s: names %d metrics, of which %d are set as code", filepath.Base(path), all, inCode)
		}
	}
	if names < 10 || queries < 4 {
		t.Errorf("there are %d names and %d queries only", names, queries)
	}
}

// TestRuleQueries holds the same of the rules of alerts, with the labels that
// they select and keep.
func TestRuleQueries(t *testing.T) {
	known := knownMetrics(t)
	known["up"] = nil // by Prometheus itself
	for name, labels := range known {
		if strings.HasPrefix(name, "hyperfleet_sentinel_") { // where one process runs several SentinelConfigs
			known[name] = append(slices.Clone(labels), "config")
		}
	}
	paths, err := filepath.Glob(root + "/deploy/prometheus/*.rules.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("there are no rules: %v", err)
	}
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var file struct {
			Groups []struct {
				Rules []struct{ Alert, Expr string }
			}
		}
		if err := yaml.Unmarshal(raw, &file); err != nil || len(file.Groups) == 0 {
			t.Fatalf("%s: %v", path, err)
		}
		for _, g := range file.Groups {
			for _, r := range g.Rules {
				if err := check(known, r.Expr); err != nil {
					t.Errorf("%s: %v\n%s", r.Alert, err, r.Expr)
				}
			}
		}
	}
}

// TestQuoted holds that what is set as code is found, and what is wrong with it.
func TestQuoted(t *testing.T) {
	known := knownMetrics(t)
	const page = "Look at `fleetloop_nothing_total`.\n\n1. `sum by (cause) (kubernetesexecution_active)`\n\n   ```promql\n   sum(kubernetesexecution_active\n   ```\n\n" +
		"    rate(kubernetesexecution_failures[5m])\n\n`kubernetesexecution_lifecycle_duration_seconds` is `fine`.\n"
	var got []string
	for _, text := range quoted(page) {
		if _, err := asks(known, text); err != nil {
			got = append(got, err.Error())
		}
	}
	want := []string{"unclosed left parenthesis", `no metric "kubernetesexecution_failures"`, `no metric "fleetloop_nothing_total"`, `groups by "cause"`}
	if len(got) != len(want) {
		t.Fatalf("%q, want %q", got, want)
	}
	for i := range want {
		if !strings.Contains(got[i], want[i]) {
			t.Errorf("%q, want %q", got[i], want[i])
		}
	}
}
