// Package apitest runs the command line and the sample adapters against the
// fleet API on PostgreSQL, for all that a fake could have got wrong.
package apitest

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
	"github.com/fleetloop/fleetloop/internal/sampleadapter"
)

// TestMain ignores a goroutine that the Pub/Sub client starts in an init function.
func TestMain(m *testing.M) {
	pgtest.Main(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

// newAPI starts a fleet API on a separate database and returns its URL.
func newAPI(t *testing.T) string {
	t.Helper()
	return newAPIOn(t, pgtest.NewMigratedDatabaseURL(t))
}

// newAPIOn starts a fleet API on a database and gives its URL.
func newAPIOn(t *testing.T, database string) string {
	t.Helper()
	return newAPIWith(t, database, auth.Config{Mode: auth.ModeNone})
}

// newAPIWith starts a fleet API that lets in whom cfg says.
func newAPIWith(t *testing.T, database string, cfg auth.Config) string {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	pool := pgtest.Open(t, database)
	api, err := fleetapi.New(fleetapi.Config{
		Auth: cfg,
		RequiredAdapters: fleetapi.RequiredAdapters{
			Clusters:  []string{sampleadapter.Validation, sampleadapter.DNS, sampleadapter.Provisioning},
			NodePools: []string{sampleadapter.Validation, sampleadapter.Provisioning},
		},
	}, fleetapi.Deps{Store: pgstore.New(pool), Timeline: pgstore.NewTimelineStore(pool), Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), ListenAddr: server.Listener.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	server.Config.Handler = api.Handler()
	server.Start()
	ctx, cancel := context.WithCancel(t.Context())
	watches := make(chan error, 1)
	go func() { watches <- api.RunWatchHubs(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-watches; err != nil {
			t.Error(err)
		}
		server.Close()
	})
	return server.URL
}

// nudger replaces sentinel and broker: it announces every resource to the adapters repeatedly.
type nudger struct {
	client *fleetclient.Client
}

func (n nudger) Consume(ctx context.Context, _ string, handle func(context.Context, cloudevent.Event) error) error {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for round := 0; ; round++ {
		for collection, singular := range map[string]string{v1.CollectionClusters: "cluster", v1.CollectionNodePools: "nodepool"} {
			for r, err := range n.client.Collection(collection).List(ctx, fleetclient.ListOptions{}) {
				if err != nil {
					break
				}
				// An error means that the event comes back, and so it does.
				_ = handle(ctx, cloudevent.Event{
					ID: fmt.Sprintf("%s-%d", r.ID, round), Type: "com.redhat.hyperfleet." + singular + ".reconcile", Data: fmt.Appendf(nil, `{"id":%q}`, r.ID),
				})
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// newAdapters starts the sample adapters.
func newAdapters(t *testing.T, url string) {
	t.Helper()
	client, err := fleetclient.New(fleetclient.Config{Endpoint: url})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
		client.CloseIdle()
	})
	for _, cfg := range sampleadapter.ChainedSampleConfigs(sampleadapter.Config{FailureRate: 0.2, Seed: 1}) {
		a, err := sampleadapter.New(cfg, sampleadapter.Deps{Consumer: nudger{client}, Fleet: client.Reporter()})
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() {
			if err := a.Run(ctx); err != nil {
				t.Errorf("adapter %s: %v", a.Name(), err)
			}
		})
	}
}

// A user runs commands.
type user struct {
	*testing.T

	url string
}

// wantRun runs a command, which must exit so, and gives its output and errors.
func (u user) wantRun(code int, stdin string, args ...string) (stdout, stderr string) {
	u.Helper()
	got, stdout, stderr := u.runCLI(stdin, args...)
	if got != code {
		u.Fatalf("fleetloop %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), got, code, stdout, stderr)
	}
	return stdout, stderr
}

// runCLI runs a command against the server of the user.
func (u user) runCLI(stdin string, args ...string) (code int, stdout, stderr string) {
	u.Helper()
	var out, errOut strings.Builder
	env := cli.Env{
		Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errOut,
		Interactive: slices.Contains([]string{"y\n", "n\n"}, stdin), // files are not typed
		LookupEnv: func(name string) (string, bool) {
			v, ok := map[string]string{"FLEETLOOP_SERVER": u.url}[name]
			return v, ok
		},
	}
	code = cli.Run(u.Context(), env, cli.Command(env), args)
	return code, out.String(), errOut.String()
}

func (u user) wantOutput(text string, want ...string) {
	u.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			u.Errorf("no %q in\n%s", w, text)
		}
	}
}

const fleet = `
kind: Cluster
name: eu-1
labels: {region: eu, tier: gold}
metadata: {displayName: Europe}
spec: {version: "1.30", nodes: 12345678901234567890}
---
kind: NodePool
name: workers
cluster: eu-1
spec: {replicas: 3}
---
kind: Cluster
name: us-1
labels: {region: us}
spec: {}
---
kind: NodePool
name: workers
cluster: us-1
spec: {replicas: 1}
`

// TestStory is what the manual promises, in one sitting.
func TestStory(t *testing.T) {
	t.Parallel()
	u := user{t, newAPI(t)}

	out, _ := u.wantRun(cli.CodeOK, fleet, "create", "-f", "-")
	u.wantOutput(out, "cluster/eu-1 created", "nodepool/eu-1/workers created", "nodepool/us-1/workers created")
	_, errOut := u.wantRun(cli.CodePrecondition, "kind: Cluster\nname: eu-1\n", "create", "-f", "-")
	u.wantOutput(errOut, "409", "eu-1")
	_, errOut = u.wantRun(cli.CodeFailed, "kind: Cluster\nname: NOT-GOOD\n", "create", "-f", "-")
	u.wantOutput(errOut, "400", "name")

	out, _ = u.wantRun(cli.CodeOK, "", "get", "clusters", "-l", "region in (eu,asia),tier", "-o", "wide")
	u.wantOutput(out, "eu-1", "Pending", "region=eu,tier=gold")
	if strings.Contains(out, "us-1") {
		t.Errorf("the selector selects too much:\n%s", out)
	}
	out, _ = u.wantRun(cli.CodeOK, "", "get", "nodepools")
	u.wantOutput(out, "CLUSTER", "eu-1", "us-1")
	out, _ = u.wantRun(cli.CodeOK, "", "get", "nodepools", "--cluster", "us-1", "-o", "name")
	if strings.Count(out, "\n") != 1 {
		t.Errorf("of one cluster:\n%s", out)
	}
	_, errOut = u.wantRun(cli.CodePrecondition, "", "get", "nodepool", "workers")
	u.wantOutput(errOut, "more than one")
	u.wantRun(cli.CodePrecondition, "", "get", "cluster", "nope")
	out, _ = u.wantRun(cli.CodeOK, "", "__complete", "get", "clusters", "e")
	u.wantOutput(out, "eu-1\tPending")
	_, errOut = u.wantRun(cli.CodeFailed, "", "get", "clusters", "-l", "a=(")
	u.wantOutput(errOut, "400", "labels")
	_, errOut = u.wantRun(cli.CodeTimeout, "", "wait", "cluster", "eu-1", "--for=phase=Ready", "--timeout=0")
	u.wantOutput(errOut, "cluster/eu-1 is Pending")

	newAdapters(t, u.url)
	u.wantRun(cli.CodeOK, "", "wait", "clusters", "--all", "--for=phase=Ready", "--interval=20ms", "--timeout=60s")
	u.wantRun(cli.CodeOK, "", "wait", "nodepools", "--all", "--for=condition=Reconciled", "--interval=20ms", "--timeout=60s")
	out, _ = u.wantRun(cli.CodeOK, "", "describe", "cluster", "eu-1")
	u.wantOutput(out, "Display name: Europe", "Generation:   1 (observed by all adapters)", "validation", "dns", "provisioning", "workers", "12345678901234567890")

	u.wantRun(cli.CodeOK, "", "patch", "cluster", "eu-1", "--spec", `{"version":"1.31"}`)
	u.wantRun(cli.CodeOK, "", "label", "cluster", "eu-1", "tier-", "env=prod")
	u.wantRun(cli.CodeOK, "", "wait", "cluster", "eu-1", "--for=phase=Ready", "--interval=20ms", "--timeout=60s")
	out, _ = u.wantRun(cli.CodeOK, "", "get", "cluster", "eu-1", "-o", "json")
	var got v1.Resource
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	if got.Generation != 2 || got.Status.ObservedGeneration != 2 || got.Labels["env"] != "prod" || got.Labels["tier"] != "" || !strings.Contains(string(got.Spec), "12345678901234567890") {
		t.Errorf("after the change: %s", out)
	}

	out, _ = u.wantRun(cli.CodeOK, "", "delete", "cluster", "eu-1", "--wait", "--interval=20ms", "--timeout=60s")
	u.wantOutput(out, "cluster/eu-1 deletion requested", "cluster/eu-1 deleted")
	u.wantRun(cli.CodePrecondition, "", "get", "cluster", "eu-1")
	out, _ = u.wantRun(cli.CodeOK, "", "get", "nodepools", "-o", "name")
	if strings.Count(out, "\n") != 1 {
		t.Errorf("node pools that are left:\n%s", out)
	}
}

// TestLoad loads a file line by line, and repeats an interrupted load.
func TestLoad(t *testing.T) {
	t.Parallel()
	u := user{t, newAPI(t)}
	var lines strings.Builder
	for i := range 2500 {
		_, _ = fmt.Fprintf(&lines, `{"name":"c-%d","labels":{"n":"%d"},"spec":{}}`+"\n", i, i%10)
	}
	_, errOut := u.wantRun(cli.CodePartial, lines.String()+`{"name":"NOT-GOOD","spec":{}}`, "load", "clusters", "-f", "-")
	u.wantOutput(errOut, "line 2501: name must be", "created before the error: 2000", "--if-exists skip")
	_, errOut = u.wantRun(cli.CodePrecondition, lines.String(), "load", "clusters", "-f", "-")
	u.wantOutput(errOut, "409", `line 1: a Cluster named "c-0" already exists`)
	out, _ := u.wantRun(cli.CodeOK, lines.String(), "load", "clusters", "-f", "-", "--if-exists", "skip")
	u.wantOutput(out, "clusters: 500 created, 2000 skipped\n")
	out, _ = u.wantRun(cli.CodeOK, "", "get", "clusters", "-l", "n=3", "-o", "name")
	if strings.Count(out, "\n") != 250 {
		t.Errorf("%d of the label, want 250", strings.Count(out, "\n"))
	}
	out, _ = u.wantRun(cli.CodeOK, `{"name":"workers","spec":{"replicas":3}}`, "load", "nodepools", "--cluster", "c-7", "-f", "-", "-o", "json")
	u.wantOutput(out, `{"created":1,"skipped":0}`)
	u.wantRun(cli.CodeOK, "", "get", "nodepool", "c-7/workers")
}

// TestCopy gives the output of one API to others.
func TestCopy(t *testing.T) {
	t.Parallel()
	from := user{t, newAPI(t)}
	from.wantRun(cli.CodeOK, fleet, "create", "-f", "-")
	for _, format := range []string{"yaml", "json"} {
		to := user{t, newAPI(t)}
		all, _ := from.wantRun(cli.CodeOK, "", "get", "clusters", "-o", format)
		to.wantRun(cli.CodeOK, all, "create", "-f", "-")
		to.wantRun(cli.CodeOK, all, "patch", "-f", "-")
		to.wantRun(cli.CodeOK, all, "delete", "-f", "-")
	}
}
