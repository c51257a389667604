package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/devstack/proof/faults"
	"github.com/fleetloop/fleetloop/devstack/proof/history"
)

// TestRestoreCommands holds that the documentation has the commands of a restore, and that they use the database of the
// proof.
func TestRestoreCommands(t *testing.T) {
	t.Parallel()
	c, err := readRestoreCommands("../..")
	if err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]string{
		c.restore: "alter database fleetloop rename to fleetloop_before_restore", c.migrate: "insert into tenant.restores",
		c.overwriteClusters([]string{"a", "b"}): "tenant.overwrite_shoot(id) from tenant.clusters where id in ('a', 'b')",
	} {
		if !strings.Contains(command, want) {
			t.Errorf("commands %q, want %q in them", command, want)
		}
	}
	for name, text := range map[string]string{"NoCommands": "# Restore", "OtherNames": "pg_dump pg_restore fleet-api migrate overwrite_shoot"} {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, "docs", "how-to"), 0o750); err != nil {
			t.Fatal(err)
		}
		var page strings.Builder
		for word := range strings.SplitSeq(strings.ReplaceAll(text, "fleet-api migrate", "fleet-api\u00a0migrate"), " ") {
			page.WriteString("<!-- run: drill -->\n```sh\n" + strings.ReplaceAll(word, "\u00a0", " ") + "\n```\n")
		}
		if err := os.WriteFile(filepath.Join(dir, "docs", "how-to", "back-up-and-restore.md"), []byte(page.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readRestoreCommands(dir); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestParsePreflight holds that the output of preflight gives the ids of clusters.
func TestParsePreflight(t *testing.T) {
	t.Parallel()
	rejected, missing := parsePreflight(`ok      list shoots   allowed
error   cluster blue-7 (0b-7): the Shoot has changes that the database lost when it was restored
missing cluster blue-8 (0b-8): Shoot "s8" was synced and does not exist; the worker creates it again
error   cluster blue-1 (0b-1): the Shoot is being deleted and can be created again afterwards
clusters checked: 9, would be rejected: 2
`)
	if diff := cmp.Diff([][]string{{"0b-1", "0b-7"}, {"0b-8"}}, [][]string{rejected, missing}); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestFaultsByDefault holds that only a long run has a restore and wrong clocks unless they are asked for, and that a
// fault that is not possible is left out, or refused if it is asked for.
func TestFaultsByDefault(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reason, kinds, bug, impossible string
		duration                       time.Duration
		restore, clock                 bool
		wantErr                        string
	}{
		"Short":      {reason: "their preparation would take most of the time", duration: 5 * time.Minute},
		"Long":       {reason: "all faults are wanted", duration: time.Hour, restore: true, clock: true},
		"Named":      {reason: "it is asked for", kinds: "kill,restore", duration: time.Minute, restore: true},
		"Clocks":     {reason: "it is asked for", kinds: "clock", duration: time.Minute, clock: true},
		"Bug":        {reason: "the bug needs it", bug: "R20", duration: time.Minute, restore: true},
		"Impossible": {reason: "the others are possible", impossible: faults.Restore, duration: time.Hour, clock: true},
		"Refused": {
			reason: "it is asked for in vain", kinds: "restore", impossible: faults.Restore, duration: time.Hour,
			wantErr: "the fault restore is impossible",
		},
	} {
		kinds, err := chooseFaults(test.kinds, plan{bug: test.bug, duration: test.duration}, func(kind string, _ plan) string {
			if kind == test.impossible {
				return "is impossible"
			}
			return ""
		})
		if got := fmt.Sprint(err); test.wantErr != "" && got != test.wantErr || test.wantErr == "" && err != nil {
			t.Errorf("%s: %s: %v", name, test.reason, err)
		}
		if got := slices.Contains(kinds, faults.Restore); got != test.restore {
			t.Errorf("%s: %s: restore %t", name, test.reason, got)
		}
		if got := slices.Contains(kinds, faults.Clock); got != test.clock {
			t.Errorf("%s: %s: clock %t", name, test.reason, got)
		}
	}
	if reason := whyImpossible(faults.Restore, plan{upgrade: true}); reason == "" {
		t.Error("a restore in a run of an upgrade would go back to another release")
	}
}

// TestReload holds that after a restore users know what the API has, and which clusters it has lost.
func TestReload(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		items := []v1.Resource{{ID: "c0", Name: "blue-0"}, {ID: "c3", Name: "blue-3"}}
		if strings.HasSuffix(r.URL.Path, "/nodepools") {
			items = []v1.Resource{{ID: "p0", Name: "blue-0-w"}}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"items": items, "total": len(items), "page": 1, "size": len(items)})
	}))
	defer server.Close()
	viewer, err := fleetclient.New(fleetclient.Config{Endpoint: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	w := &workload{
		tenants: []string{tenantBlue, tenantBlue, tenantBlue, tenantBlue, tenantBlue},
		// The second one is lost, the third was deleted, the fourth was deleted and is back, and the last was never acknowledged.
		ids: []string{"c0", "c1", "c2", "c3", ""}, pools: []string{"", "p1", "", "", ""}, deleted: map[int]bool{2: true, 3: true},
	}
	lost, err := w.reloadIDs(t.Context(), viewer)
	if err != nil {
		t.Fatal(err)
	}
	got := []any{lost, w.ids, w.pools, w.findDeleted([]string{"c0", "c3"})}
	want := []any{[]int{1}, []string{"c0", "", "", "c3", ""}, []string{"p0", "", "", "", ""}, []int{3}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestRestoreRecorder holds that an orphan is recorded once, and that a Shoot is overwritten again only if its sync fails
// again.
func TestRestoreRecorder(t *testing.T) {
	t.Parallel()
	var written []history.Record
	r := newRestoreRecorder(func(record history.Record) { written = append(written, record) })
	p := &process{name: "cluster-worker-0", dir: t.TempDir()}
	line := `{"level":"warn","msg":"orphan shoot found","shoot":"s","cluster_id":"c","shoot_uid":"u1","from_other_history":true}` + "\n"
	if err := os.WriteFile(p.logPath(), []byte("no JSON\n"+line+`{"msg":"ready"}`+"\n"+line), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := r.recordOrphansFromLogs([]*process{p}); err != nil {
			t.Fatal(err)
		}
	}
	want := []history.Record{{Orphan: &history.Orphan{UID: "u1", FromOtherHistory: true}}}
	if diff := cmp.Diff(want, written); diff != "" || len(r.listRecords()) != 1 {
		t.Errorf("-want +got\n%s", diff)
	}

	before, start, after := time.Unix(10, 0), time.Unix(20, 0), time.Unix(30, 0)
	failed := v1.ClusterSync{ClusterID: "a", ErrorClass: "conflict", Error: lostMessage + ": 3", LastAttempt: &before}
	if !r.isNewLoss(failed) {
		t.Error("a sync that says that changes were lost is none")
	}
	r.addOverwrites([]v1.ClusterSync{failed}, start)
	again := failed
	again.LastAttempt = &after
	if r.isNewLoss(failed) || !r.isNewLoss(again) {
		t.Error("the attempt before the permission counts, or the one after it does not")
	}
	for _, other := range []v1.ClusterSync{{ClusterID: "b", ErrorClass: "conflict", Error: "another one", LastAttempt: &after}, {ClusterID: "b"}} {
		if r.isNewLoss(other) {
			t.Errorf("%+v is a loss", other)
		}
	}
	if got := written[1:]; len(got) != 2 || got[0].LostChange.ClusterID != "a" || !got[1].Overwrite.Start.Equal(start) {
		t.Errorf("recorded %+v", got)
	}
}
