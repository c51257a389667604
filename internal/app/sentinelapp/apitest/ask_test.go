// Package apitest asks plan, why and coverage of the fleet API on PostgreSQL,
// for all that a fake could have got wrong.
package apitest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/sentinelapp"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
	"github.com/fleetloop/fleetloop/internal/sentinel/inspect"
)

func TestMain(m *testing.M) {
	pgtest.Main(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start")) // of the Pub/Sub library, begins with the process
}

// newAPI starts a fleet API on a separate database.
func newAPI(t *testing.T) *fleetclient.Client {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	api, err := fleetapi.New(fleetapi.Config{Auth: auth.Config{Mode: auth.ModeNone}, RequiredAdapters: fleetapi.RequiredAdapters{Clusters: []string{"validation"}}},
		fleetapi.Deps{Store: pgstore.New(pgtest.New(t)), Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), ListenAddr: server.Listener.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	server.Config.Handler = api.Handler()
	server.Start()
	t.Cleanup(server.Close)
	client, err := fleetclient.New(fleetclient.Config{Endpoint: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdle)
	return client
}

// runCLI runs a command of the sentinel and reads its JSON into report.
func runCLI(t *testing.T, report any, args ...string) (code int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := sentinelapp.NewCommand(&stdout, &stderr, func(string) (string, bool) { return "", false })
	cmd.SetArgs(append(args, "-o", "json"))
	err := cmd.ExecuteContext(t.Context())
	if decodeErr := json.Unmarshal(stdout.Bytes(), report); decodeErr != nil {
		t.Fatalf("%v: %v, error %v", args, decodeErr, err)
	}
	return sentinelapp.ExitCode(err)
}

func TestAskTheFleetAPI(t *testing.T) {
	api := newAPI(t)
	configure := func(name, collection, sel string) string {
		file := filepath.Join(t.TempDir(), name)
		text := fmt.Sprintf("resource_type: %s\nhyperfleet_api: {endpoint: %q, page_size: 2}\nlabel_selector: %q\n", collection, api.Endpoint(), sel)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	create := func(collection, name, region string) v1.Resource {
		r, err := api.Collection(collection).Create(t.Context(), v1.CreateRequest{Name: name, Labels: map[string]string{"region": region}, Spec: json.RawMessage("{}")})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	var clusters []v1.Resource
	for i := range 5 {
		clusters = append(clusters, create(v1.CollectionClusters, fmt.Sprint("cluster-", i), []string{"eu", "us"}[i%2]))
	}
	create(fleetclient.Nested(v1.CollectionClusters, clusters[0].ID, v1.CollectionNodePools), "workers", "eu")
	eu, us := configure("eu.yaml", "clusters", "region=eu"), configure("us.yaml", "clusters", "region=us")
	pools := configure("pools.yaml", "nodepools", "")

	var plan inspect.PlanReport
	if code := runCLI(t, &plan, "plan", "--config", eu); code != 0 || plan.OnServer != 5 || plan.Matching != 3 || plan.Due != 3 || plan.Changed != 3 {
		t.Errorf("plan: exit code %d, %+v", code, plan)
	}
	var why inspect.WhyReport
	if code := runCLI(t, &why, "why", "cluster-1", "--config", eu, "--sentinel-url", "http://127.0.0.1:1"); code != 0 || why.ID != clusters[1].ID || why.State != inspect.StateNotWatched {
		t.Errorf("why: exit code %d, %+v", code, why)
	}

	if code := runCLI(t, &why, "why", "nope", "--config", eu, "--sentinel-url", "http://127.0.0.1:1"); code != 1 || why.State != inspect.StateNotFound {
		t.Errorf("why of what is not there: exit code %d, %+v", code, why)
	}

	var cover inspect.CoverageReport
	if code := runCLI(t, &cover, "coverage", eu, us, pools); code != 0 || !cover.Proven {
		t.Errorf("coverage: exit code %d, %+v", code, cover)
	}
	for _, c := range cover.Collections {
		if c.At.IsZero() || !c.Served {
			t.Errorf("%s does not hold at an instant: %q", c.Collection, c.WalkOnly)
		}
	}
	labels := map[string]string{"region": "ap"}
	if _, err := api.Clusters().Patch(t.Context(), clusters[3].ID, v1.PatchRequest{Labels: &labels}); err != nil {
		t.Fatal(err)
	}
	if code := runCLI(t, &cover, "coverage", eu, us, pools); code != 1 || cover.Collections[0].Unwatched != 1 || cover.Collections[0].Gaps[0].Example != clusters[3].ID {
		t.Errorf("coverage: exit code %d, %+v", code, cover)
	}
}
