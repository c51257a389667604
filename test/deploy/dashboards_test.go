package deploy_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/fleetloop/fleetloop/internal/telemetry"
)

// A dashboard is as much of Grafana's model as is checked here.
type dashboard struct {
	UID        string `json:"uid"`
	Title      string `json:"title"`
	Templating struct {
		List []struct {
			Name       string          `json:"name"`
			Type       string          `json:"type"`
			Datasource source          `json:"datasource"`
			Definition string          `json:"definition"`
			Query      json.RawMessage `json:"query"`
		} `json:"list"`
	} `json:"templating"`
	Panels []panel `json:"panels"`
}

type source struct {
	UID string `json:"uid"`
}

type panel struct {
	ID         int    `json:"id"`
	Type       string `json:"type"`
	Title      string `json:"title"`
	Datasource source `json:"datasource"`
	GridPos    struct{ H, W, X, Y int }
	Targets    []struct {
		RefID        string `json:"refId"`
		Datasource   source `json:"datasource"`
		Expr         string `json:"expr"`
		LegendFormat string `json:"legendFormat"`
	} `json:"targets"`
}

// knownMetrics are the names of all metrics, with their labels: those of the
// reference, and those of every process's registry.
func knownMetrics(t *testing.T) map[string][]string {
	t.Helper()
	known := map[string][]string{}
	row := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([a-z]+) \\| (.*?) \\|")
	label := regexp.MustCompile("`([a-z_]+)`")
	for _, m := range row.FindAllStringSubmatch(string(readFile(t, root+"/docs/reference/metrics.md")), -1) {
		var names []string
		for _, l := range label.FindAllStringSubmatch(m[3], -1) {
			names = append(names, l[1])
		}
		known[m[1]] = names
		if m[2] == "histogram" {
			delete(known, m[1])
			known[m[1]+"_bucket"] = append(slices.Clone(names), "le")
			known[m[1]+"_sum"], known[m[1]+"_count"] = names, names
		}
	}
	if len(known) < 30 {
		t.Fatalf("the reference has %d metrics only", len(known))
	}
	families, err := telemetry.NewRegistry("test", "dev", "unknown").Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		var names []string
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				names = append(names, l.GetName())
			}
		}
		known[f.GetName()] = names
	}
	return known
}

// check says what is wrong with a query.
func check(known map[string][]string, query string) error {
	const window = "5m"
	for _, variable := range []string{"$__rate_interval", "$__interval", "$__range"} {
		query = strings.ReplaceAll(query, variable, window)
	}
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	if err != nil {
		return err
	}
	var of []string // labels of the metrics in the query
	selectors := 0
	if err := parser.Walk(visit(func(node parser.Node) error {
		s, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		selectors++
		names, ok := known[s.Name]
		if !ok {
			return fmt.Errorf("there is no metric %q", s.Name)
		}
		names = append(slices.Clone(names), scraped()...)
		for _, m := range s.LabelMatchers {
			if m.Name != model.MetricNameLabel && !slices.Contains(names, m.Name) {
				return fmt.Errorf("%s has no label %q", s.Name, m.Name)
			}
		}
		of = append(of, names...)
		return nil
	}), expr, nil); err != nil {
		return err
	}
	if selectors == 0 {
		return fmt.Errorf("it asks for no metric")
	}
	return parser.Walk(visit(func(node parser.Node) error {
		if a, ok := node.(*parser.AggregateExpr); ok {
			for _, name := range a.Grouping {
				if !slices.Contains(of, name) {
					return fmt.Errorf("it groups by %q, which no metric of it has", name)
				}
			}
		}
		return nil
	}), expr, nil)
}

// scraped are the labels that Prometheus gives to what it scrapes.
func scraped() []string { return []string{"instance", "job", "namespace", "pod"} }

// A visit calls itself for every node.
type visit func(parser.Node) error

// Visit visits a node.
func (v visit) Visit(node parser.Node, _ []parser.Node) (parser.Visitor, error) {
	if node == nil {
		return nil, nil //nolint:nilnil // the way of Walk to say that there is nothing below
	}
	return v, v(node)
}

// TestDashboards holds that every query of a dashboard asks for metrics and
// labels that there are, by variables that the dashboard has, and that nothing
// is there twice or lies over another.
func TestDashboards(t *testing.T) {
	known := knownMetrics(t)
	variable := regexp.MustCompile(`\$\{?([a-z_]+)`)
	paths, err := filepath.Glob(root + "/deploy/dashboards/*.json")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no dashboards: %v", err)
	}
	uids := map[string]string{}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			var d dashboard
			if err := json.Unmarshal(readFile(t, path), &d); err != nil {
				t.Fatal(err)
			}
			if other, ok := uids[d.UID]; ok || d.UID == "" {
				t.Errorf("uid %q is that of %q, too", d.UID, other)
			}
			uids[d.UID] = d.Title

			variables := map[string]bool{"__rate_interval": true, "__interval": true, "__range": true, "__all": true}
			values := regexp.MustCompile(`^label_values\((.*), ([a-z_]+)\)$`)
			for _, v := range d.Templating.List {
				if v.Type == "query" {
					m := values.FindStringSubmatch(v.Definition)
					if m == nil {
						t.Fatalf("variable %s: %q is no query of label values", v.Name, v.Definition)
					}
					if err := check(known, "count by ("+m[2]+") ("+m[1]+")"); err != nil {
						t.Errorf("variable %s: %v", v.Name, err)
					}
					if !strings.Contains(string(v.Query), strings.ReplaceAll(v.Definition, `"`, `\"`)) {
						t.Errorf("variable %s: its query and its definition differ", v.Name)
					}
					wantVariables(t, variables, variable, v.Definition, v.Datasource.UID)
				}
				variables[v.Name] = true
			}

			ids, taken := map[int]bool{}, map[[2]int]string{}
			rows := 0
			for _, p := range d.Panels {
				if ids[p.ID] || p.ID == 0 {
					t.Errorf("panel %q: its id %d is taken", p.Title, p.ID)
				}
				ids[p.ID] = true
				for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
					for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
						if other, ok := taken[[2]int{x, y}]; ok || x >= 24 {
							t.Fatalf("panel %q lies over %q, or over the edge", p.Title, other)
						}
						taken[[2]int{x, y}] = p.Title
					}
				}
				if p.Type == "row" {
					rows++
					continue
				}
				if len(p.Targets) == 0 || p.Title == "" {
					t.Errorf("panel %d %q asks for nothing", p.ID, p.Title)
				}
				refs := map[string]bool{}
				for _, q := range p.Targets {
					if refs[q.RefID] {
						t.Errorf("panel %q: query %s is there twice", p.Title, q.RefID)
					}
					refs[q.RefID] = true
					if err := check(known, q.Expr); err != nil {
						t.Errorf("panel %q: %v\n%s", p.Title, err, q.Expr)
					}
					wantVariables(t, variables, variable, q.Expr, q.Datasource.UID, p.Datasource.UID)
				}
			}
			if rows < 5 {
				t.Errorf("there are %d rows", rows)
			}
		})
	}
}

// wantVariables holds that all variables in texts are known.
func wantVariables(t *testing.T, known map[string]bool, variable *regexp.Regexp, texts ...string) {
	t.Helper()
	for _, text := range texts {
		for _, m := range variable.FindAllStringSubmatch(text, -1) {
			if !known[m[1]] {
				t.Errorf("there is no variable %s, only %v: %s", m[1], slices.Sorted(maps.Keys(known)), text)
			}
		}
	}
}

// TestDashboardsShow holds that the metrics one looks at first are looked at.
func TestDashboardsShow(t *testing.T) {
	for file, metrics := range map[string][]string{
		"sentinel":  {"events_published_total", "api_errors_total", "broker_errors_total", "reconcile_duration_seconds_bucket", "oldest_unreconciled_generation_seconds", "pending_resources", "config_reloads_total"},
		"fleet-api": {"requests_total", "request_duration_seconds_bucket", "reports_total", "watchers", "timeline_events_received_total", "timeline_last_maintenance_timestamp_seconds"},
		"cluster-worker": {
			"clusters", "oldest_pending_cluster_age_seconds", "gardener_call_duration_seconds_count", "sync_latency_seconds_bucket", "shoots", "circuit_breaker_open",
			"lost_leases_total", "fence_rejections_total", "shoot_status_lag_seconds_bucket", "reports_total", "leader", "orphan_shoots", "listener_down",
		},
		"executions": {
			"execution_active", "phase_max_age_seconds", "start_blocked_total", "approvals_pending", "approval_decisions_total", "action_execution_total", "failures_total",
			"action_execution_duration_seconds_bucket", "policy_evaluation_total", "policy_denials_total", "policy_reload_failures_total", "policy_info",
			"audit_lag_seconds", "audit_storage_failures_total", "audit_verification_failed", "job_creation_total", "dryrun_validation_total", "rollback_prepared_total",
			"condition_evaluations_total", "blocked_by_precondition_total", "failed_by_postcondition_total", "result_parse_failures_total", "api_writes_total", "admission_policies_missing",
		},
	} {
		text := string(readFile(t, root+"/deploy/dashboards/"+file+".json"))
		for _, m := range metrics {
			if !strings.Contains(text, m) {
				t.Errorf("%s.json does not show %s", file, m)
			}
		}
	}
}

// TestQueriesAreChecked holds that the check of queries finds what it is for.
func TestQueriesAreChecked(t *testing.T) {
	known := knownMetrics(t)
	for query, want := range map[string]string{
		"sum(rate(hyperfleet_sentinel_events_published_total[5m]))": "",
		"sum(rate(hyperfleet_sentinel_events_published[5m]))":       "no metric",
		"hyperfleet_sentinel_reconcile_duration_seconds":            "no metric",
		`hyperfleet_sentinel_pending_resources{shrad="a"}`:          `no label "shrad"`,
		"sum by (code) (hyperfleet_sentinel_pending_resources)":     `groups by "code"`,
		"sum(":      "parse error",
		"vector(1)": "asks for no metric",
	} {
		err := check(known, query)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", query, err, want)
		}
	}
}
