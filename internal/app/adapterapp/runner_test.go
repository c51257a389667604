package adapterapp

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/adapter"
	"github.com/fleetloop/fleetloop/adapter/adaptertest"
	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/settings"
)

const header = "apiVersion: adapter.fleetloop.io/v1alpha1\nkind: Adapter\nname: dns\n"

// compile compiles a file, without its header.
func compile(text string, env map[string]string) (*Runner, error) {
	var f File
	report, err := settings.Load(&f, settings.Source{File: "adapter.yaml", FileData: []byte(header + text)})
	if err != nil {
		return nil, err
	}
	return NewRunner(f, report, RunnerDeps{Env: func(name string) (string, bool) {
		if v, ok := env[name]; ok {
			return v, true
		}
		return settings.OSEnv(name)
	}})
}

func newRunner(t *testing.T, text string, env map[string]string) *Runner {
	t.Helper()
	r, err := compile(text, env)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A zoneServer is an HTTP service with zones by their path.
type zoneServer struct {
	*httptest.Server

	mu       sync.Mutex
	zones    map[string]string
	requests []*http.Request
	down     atomic.Bool
}

func newZoneServer(t *testing.T) *zoneServer {
	t.Helper()
	z := &zoneServer{zones: map[string]string{}}
	z.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		z.mu.Lock()
		defer z.mu.Unlock()
		z.requests = append(z.requests, r)
		_, exists := z.zones[r.URL.EscapedPath()]
		switch {
		case z.down.Load():
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.Method == http.MethodPut:
			z.zones[r.URL.EscapedPath()] = string(body)
			_, _ = io.WriteString(w, `{"state":"ready","serial":12345678901234567}`)
		case r.Method == http.MethodDelete && exists:
			delete(z.zones, r.URL.EscapedPath())
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(z.Close)
	return z
}

func (z *zoneServer) zone(path string) string {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.zones[path]
}

func (z *zoneServer) httpFile() string {
	return `
secrets: {token: {env: DNS_TOKEN}}
condition: "'validation' in available"
action:
  http:
    method: PUT
    url: "` + z.URL + `/zones/{id}"
    headers: {Authorization: "cel:'Bearer ' + secrets.token"}
    body: {zone: "cel:spec.zone", ttl: 300}
report:
  available: result.json.state == "ready"
  message: "cel:'Zone ' + spec.zone + ' is ' + result.json.state"
  conditions: [{type: Reachable, status: "result.status == 200", reason: Answered}]
  data: {serial: "cel:result.json.serial"}
delete:
  http: {method: DELETE, url: "` + z.URL + `/zones/{id}", success: [2xx, "404"]}
`
}

var zoneEnv = map[string]string{"DNS_TOKEN": "s3cret"}

// TestHTTPConformance runs the suite for adapters against an adapter that sends requests.
func TestHTTPConformance(t *testing.T) {
	z := newZoneServer(t)
	adaptertest.Run(t, adaptertest.Suite{
		Open:  func() adapter.Reconciler { return newRunner(t, z.httpFile(), zoneEnv) },
		After: []string{"validation"},
		Spec:  json.RawMessage(`{"zone": "a.example"}`), NewSpec: json.RawMessage(`{"zone": "b.example"}`),
		Effects: func(id string) string { return z.zone("/zones/" + id) },
		Break:   func() func() { z.down.Store(true); return func() { z.down.Store(false) } },
	})
}

// TestCommandConformance runs the suite against an adapter that runs a program.
func TestCommandConformance(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "zone")
	// The program can be killed at any time, so it replaces its file in one step.
	script := "#!/bin/sh\nset -e\ncd " + dir + "\ntest ! -e down\ncase $1 in\nput) cat >$2.$$; mv $2.$$ $2;;\nrm) rm -f $2;;\nesac\necho '{\"done\":true}'\n"
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	file := `
condition: "'validation' in available"
action: {command: {args: ["` + program + `", put, "cel:id"], stdin: {zone: "cel:spec.zone"}}}
report: {available: result.json.done}
delete: {command: {args: ["` + program + `", rm, "cel:id"]}}
`
	adaptertest.Run(t, adaptertest.Suite{
		Open:  func() adapter.Reconciler { return newRunner(t, file, nil) },
		After: []string{"validation"},
		Spec:  json.RawMessage(`{"zone": "a.example"}`), NewSpec: json.RawMessage(`{"zone": "b.example"}`),
		Effects: func(id string) string {
			text, _ := os.ReadFile(filepath.Join(dir, id)) // absent is nothing
			return string(text)
		},
		Break: func() func() {
			down := filepath.Join(dir, "down")
			if err := os.WriteFile(down, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return func() { _ = os.Remove(down) }
		},
	})
}

// newZone returns a resource that validation has reported as available.
func newZone(spec string) adapter.Resource {
	return adapter.Resource{
		Collection: v1.CollectionClusters,
		Resource:   v1.Resource{ID: "c1", Name: "eu-1", Kind: "Cluster", Generation: 2, Labels: map[string]string{"tier": "test"}, Spec: json.RawMessage(spec)},
		Reports: []v1.AdapterStatus{{
			Adapter: "validation", ObservedGeneration: 2, Data: json.RawMessage(`{"ok":true}`),
			Conditions: []v1.AdapterCondition{{ReportCondition: v1.ReportCondition{Type: v1.ConditionAvailable, Status: v1.ConditionTrue}}},
		}},
	}
}

// TestReport checks the parts of a report, and that large integers keep their digits.
func TestReport(t *testing.T) {
	z := newZoneServer(t)
	got, err := newRunner(t, z.httpFile(), zoneEnv).Reconcile(t.Context(), newZone(`{"zone":"a.example"}`))
	if err != nil {
		t.Fatal(err)
	}
	var text []string
	for _, c := range got.Conditions {
		text = append(text, fmt.Sprintf("%s %s %s %s", c.Type, c.Status, c.Reason, c.Message))
	}
	want := "Available True WorkSucceeded Zone a.example is ready|Applied True WorkSucceeded Zone a.example is ready|Reachable True Answered "
	if strings.Join(text, "|") != want || string(got.Data) != `{"serial":12345678901234567}` {
		t.Errorf("report %q with data %s, want %q", text, got.Data, want)
	}
	if r := z.requests[0]; r.Header.Get("Authorization") != "Bearer s3cret" || z.zone("/zones/c1") != `{"ttl":300,"zone":"a.example"}` {
		t.Errorf("request %v with body %s", r.Header, z.zone("/zones/c1"))
	}
}

// TestVariables checks the variables of expressions.
func TestVariables(t *testing.T) {
	for name, expr := range map[string]string{
		"Shortcuts": `id == "c1" && name == "eu-1" && kind == "Cluster" && generation == 2 && !deleted && labels.tier == "test"`,
		"Spec":      `spec.nodes == 3 && string(spec.nodes) == "3" && spec.share == 0.5`,
		"Reports":   `available == ["validation"] && reports.validation.conditions.Available == "True" && reports.validation.data.ok`,
		"Resource":  `resource.id == id && has(resource.created_time) && status.size() > 0`,
		"Functions": `"a-b".split("-")[1] == "b" && base64.encode(b"x") == "eA=="`,
	} {
		r := newRunner(t, "condition: |\n  "+expr+"\naction: {command: {args: [\"true\"]}}\ndelete: {nothing: true}\n", nil)
		report, err := r.Reconcile(t.Context(), newZone(`{"nodes":3,"share":0.5}`))
		if err != nil || report.Conditions[0].Status != v1.ConditionTrue {
			t.Errorf("%s: %+v, %v", name, report.Conditions, err)
		}
	}
}

// TestWrongFiles checks that mistakes are found at the start, with their position.
func TestWrongFiles(t *testing.T) {
	const action, nothing = "action: {command: {args: [\"true\"]}}\n", "delete: {nothing: true}\n"
	for name, tc := range map[string]struct{ text, want string }{
		"UnknownField":      {action + nothing + "retries: 3\n", `adapter.yaml:6:1: unknown key "retries"`},
		"UnknownInAction":   {"action: {http: {url: 'http://h', verb: GET}}\n" + nothing, `adapter.yaml:4:34: unknown key "action.http.verb"`},
		"Syntax":            {action + nothing + "condition: \"spec.zone ==\"\n", `adapter.yaml:6:12: key "condition": expression: line 1, column 13: Syntax error`},
		"UnknownVariable":   {action + nothing + "condition: spec.a && zone.b\n", `adapter.yaml:6:12: key "condition": expression: line 1, column 11: undeclared reference to 'zone'`},
		"NotBool":           {action + nothing + "condition: name + id\n", `key "condition": expression: the value is a string`},
		"InBody":            {"action:\n  http:\n    url: http://h\n    body:\n      a: [1, \"cel:nope\"]\n" + nothing, `adapter.yaml:8:14: key "action.http.body.a[1]": expression: line 1, column 1: undeclared reference to 'nope'`},
		"InHeader":          {"action: {http: {url: 'http://h', headers: {A: 'cel:nope'}}}\n" + nothing, `adapter.yaml:4:47: key "action.http.headers[A]"`},
		"NoAction":          {nothing, `key "action": has 0 actions`},
		"TwoActions":        {"action: {command: {args: [a]}, http: {url: 'http://h'}}\n" + nothing, "has 2 actions"},
		"NoDelete":          {action, "set exactly one of http, command, apply, remove and job, or nothing: true"},
		"ContradictoryEnd":  {action + "delete: {nothing: true, command: {args: [a]}}\n", `"delete.nothing": is set together with an action`},
		"SecretInURL":       {"secrets: {t: {env: T}}\naction: {http: {url: 'http://h/{secrets.t}'}}\n" + nothing, "undeclared reference to 'secrets'"},
		"SecretInArgument":  {"secrets: {t: {env: T}}\naction: {command: {args: [a, 'cel:secrets.t']}}\n" + nothing, "undeclared reference to 'secrets'"},
		"SecretInReport":    {"secrets: {t: {env: T}}\nreport: {message: 'cel:secrets.t'}\n" + action + nothing, "undeclared reference to 'secrets'"},
		"SecretInManifest":  {"secrets: {t: {env: T}}\naction: {apply: {manifest: {data: 'cel:secrets.t'}}}\n" + nothing, "undeclared reference to 'secrets'"},
		"UnknownSecret":     {"action: {http: {url: 'http://h', body: 'cel:secrets.t'}}\n" + nothing, "undeclared reference to 'secrets'"},
		"SecretTwice":       {"secrets: {t: {env: T, file: F}}\n" + action + nothing, `key "secrets[t]": set either env or file`},
		"ResultTooEarly":    {action + nothing + "condition: result.ok\n", "undeclared reference to 'result'"},
		"HostFromValue":     {"action: {http: {url: 'http://{spec.host}/'}}\n" + nothing, "must begin with http://HOST"},
		"PortFromValue":     {"action: {http: {url: 'http://h:80{spec.port}/'}}\n" + nothing, "an expression may only follow http://HOST/"},
		"HostContinued":     {"action: {http: {url: 'http://h{spec.host}/'}}\n" + nothing, "an expression may only follow http://HOST/"},
		"UserInURL":         {"action: {http: {url: 'http://u:p@h/'}}\n" + nothing, "no user"},
		"Status":            {"action: {http: {url: 'http://h', success: [ok]}}\n" + nothing, `"action.http.success[0]": "ok" is no status`},
		"ProgramFromValue":  {"action: {command: {args: ['cel:spec.program']}}\n" + nothing, "must be a text, not an expression"},
		"AvailableTwice":    {action + nothing + "report: {conditions: [{type: Available, status: 'true'}]}\n", "Available has its own expression"},
		"JobTTL":            {"action: {job: {manifest: {metadata: {namespace: n}, spec: {ttlSecondsAfterFinished: 1}}}}\n" + nothing, "must have no ttlSecondsAfterFinished"},
		"ManifestIsNoValue": {"action: {apply: {manifest: text}}\n" + nothing, "manifest must be a mapping"},
	} {
		_, err := compile(tc.text, nil)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q", name, err, tc.want)
		}
	}
}

// TestExpressionFailures checks which failures of expressions are retried.
func TestExpressionFailures(t *testing.T) {
	z := newZoneServer(t)
	for name, tc := range map[string]struct {
		text, want string
		permanent  bool
	}{
		"Condition":     {"condition: spec.missing == 1\naction: {command: {args: [\"true\"]}}\n", "no such key: missing", true},
		"ConditionType": {"condition: spec.zone\naction: {command: {args: [\"true\"]}}\n", "must be true or false", true},
		"Body":          {"action: {http: {url: '" + z.URL + "', body: 'cel:spec.missing'}}\n", "no such key: missing", true},
		"Cost":          {"condition: \"[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, [1,2,3,4,5,6,7,8,9,10].all(e, a+b+c+d+e > int(spec.n))))))\"\naction: {command: {args: [\"true\"]}}\n", "cost limit exceeded", true},
		"Size":          {"action: {http: {url: '" + z.URL + "', body: \"cel:[1,2,3,4,5,6,7,8,9,10].map(a, [1,2,3,4,5,6,7,8,9,10].map(b, [1,2,3,4,5,6,7,8,9,10].map(c, spec.long)))\"}}\n", "the value exceeds 1048576 bytes", true},
		"Secret":        {"secrets: {t: {file: /nonexistent/token}}\naction: {http: {url: '" + z.URL + "', body: 'cel:secrets.t'}}\n", `read secret "t"`, false},
		"Report":        {"action: {command: {args: [\"true\"]}}\nreport: {available: result.json.state == \"x\"}\n", "evaluate report.available", false},
		"Unsigned":      {"action: {command: {args: [\"true\"]}}\nreport: {message: 'cel:18446744073709551615u'}\n", "the integer 18446744073709551615 is too large", false},
		"Message":       {"action: {command: {args: [\"true\"]}}\nreport: {message: 'cel:spec'}\n", "must be a text", false},
	} {
		r := newRunner(t, tc.text+"delete: {nothing: true}\n", nil)
		_, err := r.Reconcile(t.Context(), newZone(`{"zone":"a","n":0,"long":"`+strings.Repeat("x", 2000)+`"}`))
		if err == nil || !strings.Contains(err.Error(), tc.want) || adapter.IsPermanent(err) != tc.permanent {
			t.Errorf("%s: error %v (permanent %t), want %q (permanent %t)", name, err, adapter.IsPermanent(err), tc.want, tc.permanent)
		}
	}
}

// TestDryRun checks that a dry run shows everything but secrets, and does nothing.
func TestDryRun(t *testing.T) {
	z := newZoneServer(t)
	r := newRunner(t, z.httpFile(), zoneEnv)
	var out strings.Builder
	if err := r.DryRun(&out, newZone(`{"zone":"a.example"}`)); err != nil {
		t.Fatal(err)
	}
	want := "action:\n  http:\n    body:\n      ttl: 300\n      zone: a.example\n    headers:\n      Authorization: Bearer <secret token>\n    method: PUT\n    url: " + z.URL + "/zones/c1\ncondition: true\n"
	if out.String() != want {
		t.Errorf("dry run:\n%s\nwant:\n%s", out.String(), want)
	}
	waiting := newZone(`{}`)
	waiting.Reports = nil
	out.Reset()
	if err := r.DryRun(&out, waiting); err != nil || !strings.Contains(out.String(), "condition: false") || !strings.Contains(out.String(), "no such key") {
		t.Errorf("dry run of a waiting resource: %v\n%s", err, out.String())
	}
	gone := newZone(`{}`)
	gone.DeletedTime = &time.Time{}
	out.Reset()
	if err := r.DryRun(&out, gone); err != nil || !strings.Contains(out.String(), "method: DELETE") {
		t.Errorf("dry run of a deleted resource: %v\n%s", err, out.String())
	}
	if len(z.requests) != 0 {
		t.Errorf("%d requests were sent", len(z.requests))
	}
}

// TestDeletion checks what happens when the cleanup is not complete, and when there is none.
func TestDeletion(t *testing.T) {
	gone := newZone(`{"zone":"a"}`)
	gone.DeletedTime = &time.Time{}
	for name, tc := range map[string]struct {
		text, want string
	}{
		"Nothing":     {"delete: {nothing: true, message: Bye}\n", "Finalized Bye"},
		"Complete":    {"delete: {command: {args: [echo, '{\"left\":0}']}, finalized: result.json.left == 0}\n", "Finalized Cleanup complete"},
		"NotComplete": {"delete: {command: {args: [echo, '{\"left\":2}']}, finalized: result.json.left == 0}\n", "Applied Cleanup in progress"},
	} {
		got, err := newRunner(t, "condition: 'false'\naction: {command: {args: [\"false\"]}}\n"+tc.text, nil).Reconcile(t.Context(), gone)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		last := got.Conditions[len(got.Conditions)-1]
		if last.Type+" "+last.Message != tc.want {
			t.Errorf("%s: %+v, want %s", name, got.Conditions, tc.want)
		}
	}
}

// FuzzFile checks that no file makes the compiler or a dry run panic, and that each error names the
// file or a key.
func FuzzFile(f *testing.F) {
	f.Add("action: {http: {url: 'http://h/{id}?a={name}', body: {a: ['cel:spec.a', 1, null]}}}\ndelete: {nothing: true}\n")
	f.Add("condition: \"a\\nb\"\naction: {command: {args: [a, 'cel:id'], stdin: 'cel:secrets.a'}}\nsecrets: {a: {env: A}}\n")
	f.Add("action: {command: {timeout: 1s}}\ndelete: {nothing: true}\n")
	f.Add("action: &a {apply: {manifest: {x: *a}}}\n")
	f.Add("action: {remove: {manifest: {apiVersion: v1, kind: A, metadata: {name: 'cel:id'}}}}\ndelete: {nothing: true}\n")
	f.Add("delete: {job: {manifest: {metadata: {namespace: n}, spec: 3}}}\nreport: {data: !!binary aGk=, conditions: [{}]}\n")
	resource := newZone(`{"zone":"a"}`)
	f.Fuzz(func(t *testing.T, text string) {
		r, err := compile(text, map[string]string{})
		if err != nil {
			if !strings.Contains(err.Error(), "adapter.yaml") && !strings.Contains(err.Error(), "key ") {
				t.Errorf("the error names no place: %v", err)
			}
			return
		}
		for _, deleted := range []*time.Time{nil, {}} {
			resource.DeletedTime = deleted
			_ = r.DryRun(io.Discard, resource) // fails for many values
		}
	})
}
