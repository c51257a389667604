package cli

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// TestShowSyncs holds what a user sees.
func TestShowSyncs(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		run    run
	}{
		"sync":            {"what is not synced", run{args: []string{"clusters", "sync"}}},
		"sync-wide":       {"more of each", run{args: []string{"cluster", "sync", "-o", "wide"}}},
		"sync-colour":     {"a state is a word first", run{args: []string{"clusters", "sync"}, terminal: true}},
		"sync-states":     {"some of them", run{args: []string{"clusters", "sync", "--state", "synced,stuck", "--no-headers"}}},
		"sync-all":        {"all of them", run{args: []string{"clusters", "sync", "--state", "all"}}},
		"sync-none":       {"data stays clean", run{args: []string{"clusters", "sync", "--state=running", "--state=stuck", "--limit", "1"}}},
		"sync-json":       {"a list", run{args: []string{"clusters", "sync", "--state", "backing_off", "-o", "json"}}},
		"sync-name":       {"what other commands take", run{args: []string{"clusters", "sync", "--state", "stuck,paused", "-o", "name"}}},
		"sync-one":        {"by name", run{args: []string{"clusters", "sync", "c-broken"}}},
		"sync-one-yaml":   {"one object is no list", run{args: []string{"clusters", "sync", "c-stuck", "-o", "yaml"}}},
		"sync-named":      {"what is there is shown", run{args: []string{"clusters", "sync", testID(5), "nope", "cluster/c-synced"}}},
		"sync-missing":    {"and what is not has a code of its own", run{args: []string{"clusters", "sync", "nope"}}},
		"sync-bad-state":  {"what there is is said", run{args: []string{"clusters", "sync", "--state", "broken"}}},
		"sync-both":       {"which is meant is not clear", run{args: []string{"clusters", "sync", "c-stuck", "--state", "stuck"}}},
		"sync-bad-limit":  {"a sign is a mistake", run{args: []string{"clusters", "sync", "--limit", "-1"}}},
		"sync-bad-format": {"what there is is said", run{args: []string{"clusters", "sync", "-o", "xml"}}},
		"sync-pool":       {"a node pool is brought there with its cluster", run{args: []string{"clusters", "sync", "nodepool/c-stuck"}}},
		"sync-describe":   {"beside all else", run{args: []string{"describe", "cluster", "c-stuck"}}},
		"sync-deleting":   {"what is still to be done", run{args: []string{"describe", "cluster", "c-backing-off"}}},
		"sync-paused":     {"somebody asked for it", run{args: []string{"describe", "cluster", "c-paused"}}},
		"sync-running":    {"who is at it", run{args: []string{"describe", "cluster", "c-running"}}},
		"sync-broken":     {"what Gardener says", run{args: []string{"describe", "cluster", "c-broken"}}},
		"sync-pending":    {"a worker may take it", run{args: []string{"describe", "cluster", "c-pending"}}},
		"clusters-what":   {"the nearest is offered", run{args: []string{"clusters", "retri"}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantGolden(t, name, tc.run.runCLI(t, newSyncs()).outputText())
		})
	}
}

func TestSyncsAreSummedUp(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		fleet  *fakeAPI
		args   string
		want   string
	}{
		"None":      {"there are no clusters", &fakeAPI{}, "clusters sync", "No clusters found.\n"},
		"Tenant":    {"whose there are none", &fakeAPI{identity: &v1.Identity{Subject: "bert", Tenant: "blue", ReadScope: v1.ScopeTenant}}, "clusters sync", "No clusters found in tenant blue.\n"},
		"AllSynced": {"nothing to show", &fakeAPI{items: newSyncs().items[:2]}, "clusters sync", "All 2 clusters are synced.\n"},
		"Some":      {"how many of how many", newSyncs(), "clusters sync", "5 of 7 clusters are not synced: 1 pending, 1 running, 1 backing_off, 1 stuck, 1 paused.\n"},
		"Cut":       {"nobody counted them", newSyncs(), "clusters sync --limit 2", "More clusters exist; the list is limited by --limit 2.\n"},
		"Whole":     {"the limit is not reached", newSyncs(), "clusters sync --limit 5", "5 of 7 clusters are not synced: 1 pending, 1 running, 1 backing_off, 1 stuck, 1 paused.\n"},
		"JSON":      {"whoever reads it can count", newSyncs(), "clusters sync -o json", ""},
		"State":     {"they were all asked for", newSyncs(), "clusters sync --state stuck", ""},
		"NoState":   {"there are none", &fakeAPI{}, "clusters sync --state stuck,paused", "No clusters are in state stuck or paused.\n"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := run{args: strings.Fields(tc.args)}.runCLI(t, tc.fleet)
			if got.stderr != tc.want || got.code != CodeOK {
				t.Errorf("%s: exit code %d, %q, want %q", tc.reason, got.code, got.stderr, tc.want)
			}
		})
	}
}

// TestManySyncsComeInPages also holds that none is lost between two chunks.
func TestManySyncsComeInPages(t *testing.T) {
	t.Parallel()
	f := &fakeAPI{}
	for n := range 1201 {
		f.items = append(f.items, newResource(v1.KindCluster, n, fmt.Sprintf("c-%04d", n)))
		f.syncs = append(f.syncs, syncOf(n, fmt.Sprintf("c-%04d", n), v1.SyncPending, nil))
	}
	got := run{args: []string{"clusters", "sync", "-o", "name"}}.runCLI(t, f)
	lines := strings.Fields(got.stdout)
	if len(lines) != 1201 || lines[0] != "cluster/c-0000" || lines[1200] != "cluster/c-1200" || len(f.requests) != 3 {
		t.Errorf("%d lines after %d requests", len(lines), len(f.requests))
	}
}

func TestSteerSyncs(t *testing.T) {
	t.Parallel()
	post := func(n int, action string) string { return "POST clusters/" + testID(n) + "/sync/" + action }
	cases := map[string]struct {
		reason string
		args   string
		sent   []string
		stdout string
		code   int
		says   string
	}{
		"Retry":         {"by name", "retry c-stuck", []string{post(1, "retry")}, "cluster/c-stuck retried\n", CodeOK, ""},
		"RetryMore":     {"by id, and as other commands write it", "retry " + testID(2) + " cluster/c-pending", []string{post(2, "retry"), post(5, "retry")}, "cluster/c-backing-off retried\ncluster/c-pending retried\n", CodeOK, ""},
		"RetrySynced":   {"there is nothing to try", "retry c-synced", []string{post(6, "retry")}, "cluster/c-synced is already synced\n", CodeOK, ""},
		"RetryRunning":  {"it was meant, and is not done", "retry c-running", []string{post(3, "retry")}, "", CodePrecondition, "retry cluster/c-running: POST /clusters/" + testID(3) + "/sync/retry: 409 Conflict: a worker is at it"},
		"RetryPaused":   {"what to do is said", "retry c-paused", []string{post(4, "retry")}, "", CodePrecondition, "fleetloop clusters resume"},
		"RetrySome":     {"the rest is done", "retry c-running c-stuck", []string{post(3, "retry"), post(1, "retry")}, "cluster/c-stuck retried\n", CodePartial, "a worker is at it"},
		"RetryStuck":    {"those alone", "retry --all-stuck", []string{post(1, "retry")}, "cluster/c-stuck retried\n", CodeOK, ""},
		"RetrySelected": {"what can not be is told of", "retry -l odd=1", []string{post(1, "retry"), post(3, "retry"), post(5, "retry"), post(7, "retry")}, "cluster/c-stuck retried\ncluster/c-pending retried\ncluster/c-broken is already synced\n", CodeOK, "cluster/c-running is being synced now\n"},
		"RetryEven":     {"what can not be is told of", "retry -l odd=0", []string{post(2, "retry"), post(4, "retry"), post(6, "retry")}, "cluster/c-backing-off retried\ncluster/c-synced is already synced\n", CodeOK, "cluster/c-paused is paused\n"},
		"RetryName":     {"for other commands", "retry c-stuck -o name", []string{post(1, "retry")}, "cluster/c-stuck\n", CodeOK, ""},
		"Pause":         {"by name", "pause c-stuck c-synced", []string{post(1, "pause"), post(6, "pause")}, "cluster/c-stuck paused\ncluster/c-synced paused\n", CodeOK, ""},
		"PauseSelected": {"by label", "pause -l odd=0", []string{post(2, "pause"), post(4, "pause"), post(6, "pause")}, "cluster/c-backing-off paused\ncluster/c-paused paused\ncluster/c-synced paused\n", CodeOK, ""},
		"PauseFor":      {"until then", "pause c-stuck --reason maintenance --for 2h", []string{post(1, "pause") + ` {"reason":"maintenance","until":"2026-03-01T14:00:00Z"}`}, "cluster/c-stuck paused\n", CodeOK, ""},
		"PauseBackward": {"a mistake", "pause c-stuck --for -2h", nil, "", CodeUsage, "--for -2h0m0s is negative"},
		"ResumeReason":  {"for the timeline", "resume c-paused --reason done", []string{post(4, "resume") + ` {"reason":"done"}`}, "cluster/c-paused resumed\n", CodeOK, ""},
		"Resume":        {"by name", "resume c-paused", []string{post(4, "resume")}, "cluster/c-paused resumed\n", CodeOK, ""},
		"Typo":          {"nothing was done", "pause c-stuck nope", nil, "", CodePrecondition, `find cluster "nope": not found`},
		"NoneMatch":     {"a mistake", "pause -l odd=7", nil, "", CodePrecondition, "no clusters match"},
		"Nothing":       {"say which", "retry", nil, "", CodeUsage, "give the clusters to retry"},
		"Both":          {"one or the other", "retry c-stuck --all-stuck", nil, "", CodeUsage, "cannot be combined"},
		"BothSelectors": {"one or the other", "retry -l a=b --all-stuck", nil, "", CodeUsage, "cannot be combined"},
		"PauseStuck":    {"only what fails is retried", "pause --all-stuck", nil, "", CodeUsage, "unknown flag"},
		"Pool":          {"it has no sync of its own", "retry nodepool/c-stuck", nil, "", CodeUsage, "has no parent"},
		"Format":        {"what there is is said", "retry c-stuck -o wide", nil, "", CodeUsage, "unknown output format"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newSyncs()
			got := run{args: append([]string{"clusters"}, strings.Fields(tc.args)...)}.runCLI(t, f)
			if diff := cmp.Diff(tc.sent, f.sentRequests()); diff != "" && len(tc.sent)+len(f.sentRequests()) > 0 {
				t.Errorf("%s: requests (-want +got):\n%s", tc.reason, diff)
			}
			if got.stdout != tc.stdout || got.code != tc.code || !strings.Contains(got.stderr, tc.says) || tc.says == "" && got.stderr != "" {
				t.Errorf("%s: exit code %d, stdout %q, stderr %q\nwant %d, %q, %q", tc.reason, got.code, got.stdout, got.stderr, tc.code, tc.stdout, tc.says)
			}
		})
	}
}

func TestRetryOfNoneThatIsStuck(t *testing.T) {
	t.Parallel()
	f := newSyncs()
	f.syncs = f.syncs[1:]
	got := run{args: []string{"clusters", "retry", "--all-stuck", "-o", "json"}}.runCLI(t, f)
	if got.code != CodeOK || got.stdout != "{\n  \"items\": []\n}\n" || got.stderr != "No clusters are stuck.\n" {
		t.Errorf("exit code %d, stdout %q, stderr %q", got.code, got.stdout, got.stderr)
	}
}

// TestASteeredFleetIsAsTheAPISaysItIs shows what came of it.
func TestASteeredFleetIsAsTheAPISaysItIs(t *testing.T) {
	t.Parallel()
	f := newSyncs()
	got := run{args: []string{"clusters", "pause", "c-pending", "-o", "json"}}.runCLI(t, f)
	if got.code != CodeOK || !strings.HasPrefix(got.stdout, "{\n  \"cluster_id\": ") || !strings.Contains(got.stdout, `"state": "paused"`) {
		t.Errorf("exit code %d:\n%s", got.code, got.stdout)
	}
	got = run{args: []string{"clusters", "pause", "c-pending", "c-stuck", "-o", "yaml"}}.runCLI(t, f)
	if got.code != CodeOK || !strings.HasPrefix(got.stdout, "items:\n- cluster_id: ") || strings.Count(got.stdout, "state: paused") != 2 {
		t.Errorf("exit code %d:\n%s", got.code, got.stdout)
	}
}

func TestSteeringEndsWhenTheServerIsAway(t *testing.T) {
	t.Parallel()
	f := newSyncs()
	requests := 0
	f.before = func(r *http.Request) (int, any) {
		if r.Method == http.MethodPost {
			requests++
			f.down = syscall.ECONNREFUSED
		}
		return 0, nil
	}
	got := run{args: []string{"clusters", "pause", "-l", "odd"}}.runCLI(t, f)
	if requests != 1 || got.code != CodePartial || strings.Count(got.stderr, "error:") != 1 || !strings.Contains(got.stderr, "connection refused") {
		t.Errorf("%d requests, exit code %d:\n%s", requests, got.code, got.stderr)
	}
}

// TestTextsOfGardenerAreHarmless plays a Gardener whose texts drive a terminal.
func TestTextsOfGardenerAreHarmless(t *testing.T) {
	t.Parallel()
	f := newSyncs()
	const evil = "a\x1b]0;owned\x07\nb"
	for n := range f.syncs {
		s := &f.syncs[n]
		s.Error, s.ErrorClass, s.ShootName, s.ShootStatusMessage, s.ClaimedBy, s.ShootStatus = evil, evil, evil, evil, evil, v1.ShootStatus(evil)
		if s.Pause != nil {
			s.Pause.By, s.Pause.Reason = evil, evil
		}
	}
	for _, args := range [][]string{{"clusters", "sync"}, {"clusters", "sync", "-o", "wide"}, {"describe", "cluster", "c-stuck"}, {"describe", "cluster", "c-paused"}} {
		got := run{args: args}.runCLI(t, f)
		if got.code != 0 || strings.ContainsAny(got.stdout, "\x1b\x07") {
			t.Errorf("%v: code %d, %q", args, got.code, got.stdout)
		}
	}
}

func TestNamesOfClustersAreCompleted(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ args, want string }{
		{"clusters sync c-p", "c-paused\tReady\nc-pending\tReady\n:4\n"},
		{"clusters retry c-stuck c-s", "c-stuck\tReady\nc-synced\tReady\n:4\n"},
		{"clusters sync --state st", "all\npending\nrunning\nbacking_off\nstuck\npaused\nsynced\n:4\n"},
	} {
		got := run{args: append([]string{"__complete"}, strings.Fields(tc.args)...)}.runCLI(t, newSyncs())
		if got.stdout != tc.want {
			t.Errorf("%s: got %q, want %q", tc.args, got.stdout, tc.want)
		}
	}
}
