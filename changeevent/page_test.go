package changeevent_test

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/app/changes"
	"github.com/fleetloop/fleetloop/internal/settings"
)

const (
	page     = "../docs/how-to/send-change-events.md"       // settings and error classes
	requests = "../docs/reference/change-event-requests.md" // actions and requests
)

func newPage(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestPageShowsRequests verifies that the page shows exactly the requests that the tests
// of the formats compare.
func TestPageShowsRequests(t *testing.T) {
	text := newPage(t, requests)
	shown := map[string]bool{}
	with := regexp.MustCompile("(?s)<!-- request: ([a-z-]+) -->\n```http\n(.*?)```\n").ReplaceAllStringFunc(text, func(block string) string {
		mark, _, _ := strings.Cut(block, "\n")
		name := strings.TrimSuffix(strings.TrimPrefix(mark, "<!-- request: "), " -->")
		request, err := os.ReadFile(filepath.Join("testdata", "requests", name+".http"))
		if err != nil {
			t.Fatal(err)
		}
		shown[name] = true
		return mark + "\n```http\n" + string(request) + "```\n"
	})
	if changeevent.Update() {
		if err := os.WriteFile(requests, []byte(with), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if with != text {
		t.Error("the page shows other requests than those in testdata: go test ./changeevent -update")
	}
	if n := strings.Count(text, "```http\n"); n != len(shown) {
		t.Errorf("%d requests are shown, %d of them from testdata", n, len(shown))
	}
	files, err := filepath.Glob("testdata/requests/*.http")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if name := strings.TrimSuffix(filepath.Base(file), ".http"); !shown[name] {
			t.Errorf("the page does not show %s", file)
		}
	}
}

// component holds settings like those of the components.
type component struct {
	Changes changes.Config `key:"change_events"`
}

// TestPageShowsSettings creates each sink from the settings on the page, with the
// credentials that they require.
func TestPageShowsSettings(t *testing.T) {
	secrets := t.TempDir()
	for name, secret := range map[string]string{
		"token": "5bc0", "pagerduty": "0123456789abcdef0123456789abcdef", "datadog": "0123456789abcdef", "grafana": "glsa_5bc0",
		"slack": changeevent.Endpoints()[changeevent.FormatSlack],
	} {
		if err := os.WriteFile(filepath.Join(secrets, name), []byte(secret), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var formats []changeevent.Format
	for _, m := range regexp.MustCompile("(?s)```yaml\n(.*?)```\n").FindAllStringSubmatch(newPage(t, page), -1) {
		file := strings.ReplaceAll(m[1], "/var/run/secrets/change-events/", secrets+"/")
		var c component
		if _, err := settings.Load(&c, settings.Source{File: "config.yaml", FileData: []byte(file)}); err != nil {
			t.Fatalf("%v in\n%s", err, m[1])
		}
		if err := c.Changes.ValidateSinks(); err != nil {
			t.Errorf("%v in\n%s", err, m[1])
		}
		sinks := c.Changes.Sinks
		if c.Changes.Endpoint != "" {
			sinks = append(sinks, changes.SinkConfig{Name: changes.DefaultSink, Target: changes.Target(c.Changes.Default)})
		}
		for _, s := range sinks {
			formats = append(formats, s.Format)
			if want := changeevent.Endpoints()[s.Format]; s.EndpointFile == "" && s.Endpoint != want {
				t.Errorf("the endpoint of %s is %s, want %s, from which the request is", s.Format, s.Endpoint, want)
			}
		}
	}
	for _, f := range changeevent.Formats() {
		if !slices.Contains(formats, f) {
			t.Errorf("the page shows no settings of %s", f)
		}
	}
}

// TestPageNamesActions verifies that the tables of the page list each action with its
// summary.
func TestPageNamesActions(t *testing.T) {
	text := newPage(t, requests)
	for action, e := range map[string]changeevent.ChangeEvent{
		changeevent.ActionCordon: {ErrorCode: "XID-79"}, changeevent.ActionUncordon: {},
		changeevent.ActionDrainStarted: {Source: changeevent.SourceNodeDrainer}, changeevent.ActionDrainCompleted: {Source: changeevent.SourceNodeDrainer},
		changeevent.ActionDrainFailed:     {Source: changeevent.SourceNodeDrainer, Reason: "shop/web-0 is blocked"},
		changeevent.ActionRebootRequested: {Source: changeevent.SourceFaultRemediation}, changeevent.ActionTerminateRequested: {Source: changeevent.SourceFaultRemediation},
		changeevent.ActionRebootSent: {Source: changeevent.SourceJanitor}, changeevent.ActionTerminateSent: {Source: changeevent.SourceJanitor},
		changeevent.ActionRebootExecuted: {Source: changeevent.SourceJanitor}, changeevent.ActionTerminateExecuted: {Source: changeevent.SourceJanitor},
		changeevent.ActionDrainCancelled: {Source: changeevent.SourceNodeDrainer}, changeevent.ActionOverrideDetected: {}, changeevent.ActionBudgetExhausted: {},
		changeevent.ActionSupportRequired: {Source: changeevent.SourceFaultRemediation, ErrorCode: "XID-79"},
		changeevent.ActionRebootFailed:    {Source: changeevent.SourceJanitor}, changeevent.ActionTerminateFailed: {Source: changeevent.SourceJanitor},
		changeevent.ActionExecutionStarted: execution(""), changeevent.ActionExecutionSucceeded: execution(""), changeevent.ActionExecutionFailed: execution(""),
		changeevent.ActionExecutionApproved: execution("alice"), changeevent.ActionExecutionRejected: execution("alice"), changeevent.ActionExecutionRolledBack: execution(""),
		changeevent.ActionClusterCreated: cluster(), changeevent.ActionClusterChanged: cluster(), changeevent.ActionClusterDeleted: cluster(),
		changeevent.ActionShootCreated: shoot(), changeevent.ActionShootUpdated: shoot(), changeevent.ActionShootDeleted: shoot(), changeevent.ActionShootReady: shoot(),
		changeevent.ActionShootFailed: shoot(),
		"nodepool-created":            pool(), "nodepool-changed": pool(), "nodepool-deleted": pool(),
	} {
		e.Action, e.Source = action, cmp.Or(e.Source, changeevent.SourceFaultQuarantine)
		if e.Subject == "" && e.Cluster == "" {
			e.NodeName = "gpu-node-01"
		}
		row := "| `" + action + "` | `" + e.Source + "` | " + changeevent.Summarize(e) + " |\n"
		if !strings.Contains(text, row) {
			t.Errorf("the page lacks the row\n%s", row)
		}
	}
}

func execution(who string) changeevent.ChangeEvent {
	e := changeevent.ChangeEvent{Source: changeevent.SourceExecutionController, Subject: "executions/scale-web"}
	if who != "" {
		e.Details = map[string]string{"actor": who}
	}
	return e
}

func cluster() changeevent.ChangeEvent {
	return changeevent.ChangeEvent{Source: changeevent.SourceFleetAPI, Cluster: "my-cluster-name"}
}

func shoot() changeevent.ChangeEvent {
	return changeevent.ChangeEvent{Source: changeevent.SourceClusterWorker, Cluster: "my-cluster-name", Subject: "shoots/my-cluster", Message: "no quota"}
}

func pool() changeevent.ChangeEvent {
	return changeevent.ChangeEvent{Source: changeevent.SourceFleetAPI, Cluster: "my-cluster-name", Subject: "nodepools/gpu"}
}

// TestPageNamesClasses verifies that the page explains each error class.
func TestPageNamesClasses(t *testing.T) {
	_, table, _ := strings.Cut(newPage(t, page), "## When an event does not arrive")
	for _, class := range []changeevent.Class{
		changeevent.ClassRedirect, changeevent.ClassClientError, changeevent.ClassUnauthorized, changeevent.ClassForbidden, changeevent.ClassNotFound,
		changeevent.ClassGone, changeevent.ClassRateLimited, changeevent.ClassServerError, changeevent.ClassConnection, changeevent.ClassDNS,
		changeevent.ClassTLS, changeevent.ClassTimeout, changeevent.ClassAddressDenied, changeevent.ClassEncode, changeevent.ClassQueueFull,
		changeevent.ClassClosed, changeevent.ClassShutdown, changeevent.ClassExpired,
	} {
		if !strings.Contains(table, "`"+string(class)+"`") {
			t.Errorf("the page does not say what %s is", class)
		}
	}
}
