package allinone_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
)

// listActions are what the worker says that it did to a cluster's Shoot, in order.
func (r *run) listActions(cluster string) []string {
	var list []string
	for _, line := range r.outputLines("change", map[string]any{"cluster": cluster}) {
		list = append(list, textOf(line, "action"))
	}
	return list
}

// TestClustersBecomeShoots holds that the clusters of a demo go to the garden
// in memory and back: created, one of them failing at first, ready, and gone
// when the cluster is deleted, which the API waits for.
func TestClustersBecomeShoots(t *testing.T) {
	t.Parallel()
	r := startProgram(t, nil, "--data-dir", t.TempDir(), "--demo", "--demo-clusters", "3", "--demo-create-interval", "5ms", "--gardener-create-duration", "2s",
		"--poll-interval", "100ms", "--max-age-not-ready", "300ms", "--adapter-latency", "1ms", "--adapter-failure-rate", "0")
	r.waitForLine(t, "demo fleet ready", map[string]any{"clusters": "3/3", "nodepools": "6/6"})

	var failed int
	for _, cluster := range []string{"us-east-01", "us-west-02", "eu-west-03"} {
		got := r.listActions(cluster)
		if len(got) < 2 || got[0] != "shoot-created" || got[len(got)-1] != "shoot-ready" {
			t.Errorf("cluster %s: %v, want it to begin with shoot-created and to end with shoot-ready", cluster, got)
		}
		if slices.Contains(got, "shoot-failed") {
			failed++
		}
	}
	if failed != 1 {
		t.Errorf("%d clusters failed before they were ready, want one", failed)
	}

	api := r.newClient(t)
	var id string
	for c, err := range api.Syncs().List(t.Context(), fleetclient.SyncOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if c.State != v1.SyncSynced || c.ShootStatus != v1.ShootReady || c.ShootName == "" {
			t.Errorf("cluster %s is %s and its Shoot %q %s, want it synced and ready", c.Name, c.State, c.ShootName, c.ShootStatus)
		}
		if c.Name == "us-east-01" {
			id = c.ClusterID
		}
	}
	if _, err := api.Clusters().Delete(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		_, err := api.Clusters().Get(t.Context(), id)
		if err == nil {
			return errors.New("the cluster is still there")
		}
		if !fleetclient.IsNotFound(err) {
			return err
		}
		if got := r.listActions("us-east-01"); len(got) == 0 || got[len(got)-1] != "shoot-deleted" {
			return fmt.Errorf("the cluster went with %v, want shoot-deleted last", got)
		}
		return nil
	})
	r.stopProgram(t)
	// How many there are is as of the last look, which may be from before the end.
	if out := r.stdout.String(); !strings.Contains(out, "Shoots  0 pending  0 progressing") {
		t.Errorf("the summary lacks the Shoots:\n%s", out)
	}
}
