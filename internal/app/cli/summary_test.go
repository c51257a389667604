package cli

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

func newSummary() v1.Summary {
	return v1.Summary{
		AsOf: now.Add(-time.Second),
		Kinds: map[string]v1.KindSummary{
			v1.CollectionClusters: {
				LabelSummary:   v1.LabelSummary{Total: 12, Phases: map[v1.Phase]int64{v1.PhaseReady: 10, v1.PhaseFailed: 2}},
				OldestNotReady: &v1.OldestResource{Name: "eu-1", Phase: v1.PhaseFailed, Since: now.Add(-3 * time.Hour)},
			},
			v1.CollectionNodePools: {LabelSummary: v1.LabelSummary{Phases: map[v1.Phase]int64{}}},
		},
		Sync: v1.SyncSummary{
			States:         map[v1.SyncState]int64{v1.SyncSynced: 11, v1.SyncStuck: 1},
			OldestUnsynced: &v1.OldestResource{Name: "eu-2", Since: now.Add(-time.Hour)},
		},
		TopReasons: []v1.SummaryReason{
			{Reason: "quota of <n> exceeded", Source: "sync", Count: 2, Since: now.Add(-time.Hour), Example: v1.ReasonExample{Kind: v1.KindCluster, Name: "eu-2"}},
		},
		Deliveries: v1.DeliverySummary{Failing: 3, FailingSince: new(now.Add(-2 * time.Hour)), GivenUp: v1.MaxDeliveries},
		Labels: map[string]map[string]v1.LabelSummary{"region": {
			"eu": {Total: 4, Phases: map[v1.Phase]int64{v1.PhaseReady: 2, v1.PhaseFailed: 2}},
			"us": {Total: 8, Phases: map[v1.Phase]int64{v1.PhaseReady: 8}},
		}, "env": {}},
		MoreLabelValues: map[string]int{"region": 3},
	}
}

const summaryTables = `Counted 1s ago

KIND        TOTAL   READY   PENDING   PROVISIONING   FAILED   DELETING   OLDEST NOT READY
clusters    12      10      0         0              2        0          eu-1 (3h)
nodepools   0       0       0         0              0        0          -

SYNC       PENDING   RUNNING   BACKING_OFF   STUCK   PAUSED   SYNCED   OLDEST UNSYNCED
clusters   0         0         0             1       0        11       eu-2 (60m)

CHANGE EVENTS   FAILING   GIVEN UP   FAILING FOR
clusters        3         10000+     120m

REGION   TOTAL   READY   PENDING   PROVISIONING   FAILED   DELETING
us       8       8       0         0              0        0
eu       4       2       0         0              2        0
3 more

COUNT   SOURCE   SINCE   EXAMPLE        REASON
2       sync     60m     cluster/eu-2   quota of <n> exceeded
`

func TestSummary(t *testing.T) {
	t.Parallel()
	api := func() *fakeAPI { return &fakeAPI{before: answering(http.StatusOK, newSummary())} }
	got := run{args: []string{"summary"}}.runCLI(t, api())
	if diff := cmp.Diff(summaryTables, got.stdout); diff != "" || got.code != CodeOK {
		t.Errorf("exit code %d, %q (-want +got):\n%s", got.code, got.stderr, diff)
	}
	got = run{args: []string{"summary", "-o", "json"}}.runCLI(t, api())
	var read v1.Summary
	if err := json.Unmarshal([]byte(got.stdout), &read); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(newSummary(), read); diff != "" {
		t.Errorf("json (-want +got):\n%s", diff)
	}
	got = run{args: []string{"summary", "-o", "yaml"}}.runCLI(t, api())
	if !strings.Contains(got.stdout, "\nkinds:\n  clusters:\n    total: 12\n") {
		t.Errorf("yaml: %s", got.stdout)
	}
	got = run{args: []string{"summary"}}.runCLI(t, &fakeAPI{before: answering(http.StatusNotFound, v1.Problem{})})
	if got.code != CodeFailed || !strings.Contains(got.stderr, "does not support summary") {
		t.Errorf("an old server: exit code %d, %q", got.code, got.stderr)
	}
}

func TestStuck(t *testing.T) {
	t.Parallel()
	next := now.Add(4 * time.Minute)
	list := v1.StuckList{Items: []v1.StuckResource{
		{
			Kind: v1.KindCluster, ID: "1", Name: "eu-1", Phase: v1.PhaseProvisioning, Since: now.Add(-3 * time.Hour), Attempts: 9, NextAttempt: &next,
			Cause: v1.StuckCause{Type: v1.StuckOnGardener, Code: "ERR_INFRA_QUOTA_EXCEEDED", Message: "no\nquota"},
		},
		{
			Kind: v1.KindNodePool, ID: "2", Name: "workers", ClusterName: "eu-2", Phase: v1.PhaseFailed, Since: now.Add(-time.Hour),
			Cause: v1.StuckCause{Type: v1.StuckOnAdapter, Adapter: "dns", Reason: "NoZone", Message: "the zone is gone"},
		},
	}}
	cases := map[string]struct {
		reason         string
		args           []string
		list           v1.StuckList
		code           int
		stdout, stderr string
	}{
		"Table": {
			"a row for each",
			[]string{"stuck"},
			list, CodeOK,
			"KIND       NAME           PHASE          AGE   CAUSE                                         ATTEMPTS   NEXT\n" +
				"cluster    eu-1           Provisioning   3h    gardener ERR_INFRA_QUOTA_EXCEEDED: no quota   9          4m\n" +
				"nodepool   eu-2/workers   Failed         60m   adapter dns NoZone: the zone is gone          -          -\n", "",
		},
		"Name":   {"commands take them", []string{"stuck", "-o", "name"}, list, CodeOK, "cluster/eu-1\nnodepool/2\n", ""},
		"Limit":  {"a message names the limit", []string{"stuck", "--limit", "1", "-o", "table", "--no-headers"}, list, CodeOK, "cluster   eu-1   Provisioning   3h   gardener ERR_INFRA_QUOTA_EXCEEDED: no quota   9   4m\n", "More resources are stuck; the list is limited by --limit 1.\n"},
		"None":   {"it says so", []string{"stuck"}, v1.StuckList{}, CodeOK, "", "Nothing is stuck.\n"},
		"JSON":   {"an empty list", []string{"stuck", "-o", "json"}, v1.StuckList{}, CodeOK, "{\n  \"items\": []\n}\n", ""},
		"Cause":  {"a slip is named", []string{"stuck", "--cause", "gardner"}, list, CodeUsage, "", "did you mean gardener?"},
		"Kind":   {"nothing reports on them so", []string{"stuck", "manifests"}, list, CodeUsage, "", "use one of clusters, nodepools"},
		"Age":    {"time does not run back", []string{"stuck", "--older-than", "-5m"}, list, CodeUsage, "", "is negative"},
		"Format": {"not known", []string{"stuck", "-o", "wide"}, list, CodeUsage, "", "unknown output format"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := run{args: tc.args}.runCLI(t, &fakeAPI{before: answering(http.StatusOK, tc.list)})
			if diff := cmp.Diff(tc.stdout, got.stdout); diff != "" || got.code != tc.code || !strings.Contains(got.stderr, tc.stderr) {
				t.Errorf("%s: exit code %d, stderr %q (-want +got):\n%s", tc.reason, got.code, got.stderr, diff)
			}
		})
	}
	var query string
	api := &fakeAPI{before: func(r *http.Request) (int, any) {
		query = r.URL.Path + "?" + r.URL.RawQuery
		return http.StatusOK, v1.StuckList{}
	}}
	run{args: []string{"stuck", "np", "--cause", "adapter,paused", "--older-than", "1h"}}.runCLI(t, api)
	if want := v1.StuckPath + "?cause=adapter%2Cpaused&kind=nodepools&limit=500&older_than=1h0m0s"; query != want {
		t.Errorf("got %s, want %s", query, want)
	}
}
