package allinone_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/changeevent"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/app/execcli"
)

// listActions returns the recorded actions on a cluster, oldest first.
func listActions(t *testing.T, api *fleetclient.Client, cluster string) []string {
	t.Helper()
	page, err := api.ChangeEvents().Page(t.Context(), fleetclient.ChangeEventOptions{Cluster: cluster}, "")
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range slices.Backward(page.Items) {
		list = append(list, e.Action)
	}
	return list
}

// wantActions waits until each of the actions was recorded once for a cluster.
func wantActions(t *testing.T, api *fleetclient.Client, cluster string, want ...string) {
	t.Helper()
	eventually(t, func() error {
		got := listActions(t, api, cluster)
		for _, action := range want {
			n := 0
			for _, a := range got {
				if a == action {
					n++
				}
			}
			if n != 1 {
				return fmt.Errorf("%s was told %d times among %v", action, n, got)
			}
		}
		return nil
	})
}

// callCLI runs a command of the command line against a run.
func callCLI(t *testing.T, api *fleetclient.Client, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	env := cli.Env{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs}
	if code := cli.Run(t.Context(), env, cli.Command(env), append(args, "--server", api.Endpoint())); code != 0 {
		t.Fatalf("%v: exit code %d: %s", args, code, errs.String())
	}
	return out.String()
}

// TestTimeline verifies that the timeline records the life of a cluster. fleetloop changes shows
// the timeline, and every other configured sink receives the same events.
func TestTimeline(t *testing.T) {
	t.Parallel()
	told := make(chan string, 1000)
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		var p changeevent.Payload
		if err := json.Unmarshal(body, &p); err != nil {
			t.Errorf("the body is no payload: %v: %s", err, body)
		}
		told <- r.URL.Path + " " + p.Action
	}))
	t.Cleanup(other.Close)
	r := startProgram(t, map[string]string{"CHANGE_EVENTS_ENABLED": "true", "CHANGE_EVENTS_ENDPOINT": other.URL + "/in"},
		"--data-dir", t.TempDir(), "--poll-interval", "200ms", "--adapter-latency", "1ms", "--adapter-failure-rate", "0", "--gardener-create-duration", "10ms", "--log-level", "info")
	api := r.newClient(t)
	c, err := api.Clusters().Create(t.Context(), v1.CreateRequest{Name: "eu-1", Spec: json.RawMessage(`{"version":"1.34"}`)})
	if err != nil {
		t.Fatal(err)
	}
	(&life{run: r, api: api, id: c.ID}).wantReady(t, 1)
	wantActions(t, api, "eu-1", "cluster-created", "shoot-created", "shoot-ready")
	if _, err := api.Clusters().Delete(t.Context(), c.ID); err != nil {
		t.Fatal(err)
	}
	wantActions(t, api, "eu-1", "cluster-created", "shoot-created", "shoot-ready", "shoot-deleted", "cluster-deleted")

	shown := callCLI(t, api, "changes", "--cluster", "eu-1", "--source", "fleetloop/cluster-worker")
	for _, want := range []string{"Fleetloop asked Gardener to create cluster eu-1", "Gardener reported cluster eu-1", "Gardener deleted cluster eu-1"} {
		if !strings.Contains(shown, want) {
			t.Errorf("fleetloop changes lacks %q:\n%s", want, shown)
		}
	}
	_, debug := sendRequest(t, http.MethodGet, "http://"+r.healthAddress(t)+"/debug/change-events", "")
	for _, want := range []string{`"sink": "default"`, `"sink": "timeline"`} {
		if !strings.Contains(debug, want) {
			t.Errorf("/debug/change-events lacks %s:\n%s", want, debug)
		}
	}
	r.stopProgram(t)
	close(told)
	var outside []string
	for e := range told {
		outside = append(outside, e)
	}
	for _, want := range []string{"/in/eu-1 shoot-created", "/in/eu-1 shoot-ready", "/in/eu-1 shoot-deleted"} {
		if !slices.Contains(outside, want) {
			t.Errorf("the other sink was not told %q, but %v", want, outside)
		}
	}
}

// TestExecutionsAreTold holds that the execution of the commands that a run prints
// is in the timeline, with who approved of it.
func TestExecutionsAreTold(t *testing.T) {
	t.Parallel()
	r := startProgram(t, nil, "--data-dir", t.TempDir(), "--kube=embedded", "--adapters=false", "--gardener=false", "--log-level", "info")
	api := r.newClient(t)
	r.waitForLine(t, "try an execution", nil)
	lookup := func(string) (string, bool) { return "", false }
	for _, line := range r.outputLines("try an execution", nil)[:2] { // to ask, and to approve
		args := strings.Fields(strings.TrimPrefix(textOf(line, "command"), "fleetloop "))
		// Each has to wait for what the one before has begun.
		eventually(t, func() error {
			var out, errs bytes.Buffer
			env := cli.Env{Stdin: strings.NewReader("yes\n"), Interactive: true, Stdout: &out, Stderr: &errs, LookupEnv: lookup}
			root := cli.Command(env)
			root.AddCommand(execcli.Commands(env)...)
			if code := cli.Run(t.Context(), env, root, args); code != 0 {
				return fmt.Errorf("%v: exit code %d: %s%s", args, code, out.String(), errs.String())
			}
			return nil
		})
	}
	wantActions(t, api, "local", "execution-approved", "execution-started", "execution-succeeded")
	page, err := api.ChangeEvents().Page(t.Context(), fleetclient.ChangeEventOptions{Actor: "bob"}, "")
	if err != nil || len(page.Items) == 0 {
		t.Fatalf("bob did nothing: %+v, %v", page, err)
	}
	e := page.Items[0]
	if e.Action != "execution-approved" || e.Subject != "executions/scale-web" || e.Details["target"] != "Deployment/shop/web" || e.Source != "fleetloop/execution-controller" {
		t.Errorf("bob's approval is told as %+v", e)
	}
	r.stopProgram(t)
}
