package clusterworker_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
)

var at = time.Date(2026, time.March, 4, 5, 6, 7, 8_000_000, time.UTC)

// readyChange returns a change as recorded by the status poller.
func readyChange() clusterworker.Change {
	return clusterworker.Change{
		At: at, Action: clusterworker.ShootReady, ClusterID: "c-1", Cluster: "eu-west-01", Tenant: "shop",
		Shoot: "euwest01", Generation: 3, Message: "All is well.",
	}
}

// TestEvent verifies the change event of a Shoot.
func TestEvent(t *testing.T) {
	t.Parallel()
	got := readyChange().ToChangeEvent()
	want := changeevent.ChangeEvent{
		Action: changeevent.ActionShootReady, Source: "fleetloop/cluster-worker", Cluster: "eu-west-01", Subject: "shoots/euwest01",
		Reason: "All is well.", Outcome: "succeeded", Timestamp: at, Session: "c-1.3", ID: got.ID,
		Details: map[string]string{"cluster_id": "c-1", "tenant": "shop", "generation": "3"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	failed := readyChange()
	failed.Action, failed.Message = clusterworker.ShootFailed, "quota: no room"
	if got := failed.ToChangeEvent(); got.Outcome != changeevent.OutcomeFailed || got.Reason != "quota: no room" {
		t.Errorf("a failure is told as %+v", got)
	}
	for action, want := range map[clusterworker.Action]string{
		clusterworker.ShootReady:   "Gardener reported cluster eu-west-01 (Shoot euwest01) ready",
		clusterworker.ShootCreated: "Fleetloop asked Gardener to create cluster eu-west-01 (Shoot euwest01)",
		clusterworker.ShootUpdated: "Fleetloop asked Gardener to update cluster eu-west-01 (Shoot euwest01)",
		clusterworker.ShootDeleted: "Gardener deleted cluster eu-west-01 (Shoot euwest01)",
		clusterworker.ShootFailed:  "Gardener failed to reconcile cluster eu-west-01 (Shoot euwest01): All is well.",
	} {
		c := readyChange()
		c.Action = action
		e := c.ToChangeEvent()
		if got := changeevent.Summarize(e); got != want || e.Source != "fleetloop/cluster-worker" {
			t.Errorf("people read %q by %q, want %q", got, e.Source, want)
		}
	}
}

// TestIDs verifies which changes have the same ID, so that receivers can drop duplicates.
func TestIDs(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		change func(*clusterworker.Change)
		same   bool
	}{
		"Again":        {"what is told again is the same", func(*clusterworker.Change) {}, true},
		"InOtherWords": {"words are no other change", func(c *clusterworker.Change) { c.Message = "Fine." }, true},
		"Elsewhere":    {"a time is the same in all zones", func(c *clusterworker.Change) { c.At = c.At.In(time.FixedZone("", 3600)) }, true},
		"Later":        {"it failed in between", func(c *clusterworker.Change) { c.At = c.At.Add(time.Millisecond) }, false},
		"OtherAction":  {"", func(c *clusterworker.Change) { c.Action = clusterworker.ShootFailed }, false},
		"OtherCluster": {"names are of a tenant, ids are not", func(c *clusterworker.Change) { c.ClusterID = "c-2" }, false},
		"NextSpec":     {"", func(c *clusterworker.Change) { c.Generation++ }, false},
	}
	for name, tc := range cases {
		other := readyChange()
		tc.change(&other)
		if same := readyChange().ToChangeEvent().ID == other.ToChangeEvent().ID; same != tc.same {
			t.Errorf("%s: %s: same id is %t, want %t", name, tc.reason, same, tc.same)
		}
	}

	for _, action := range []clusterworker.Action{clusterworker.ShootCreated, clusterworker.ShootDeleted} {
		once := readyChange()
		once.Action, once.ShootUID = action, "uid-1"
		again := once
		again.At, again.Generation = again.At.Add(time.Minute), 4
		if once.ToChangeEvent().ID != again.ToChangeEvent().ID {
			t.Errorf("%s: a Shoot is told of twice, for example by the sync and by the poller", action)
		}
		again.ShootUID = "uid-2"
		if once.ToChangeEvent().ID == again.ToChangeEvent().ID {
			t.Errorf("%s: another Shoot of the same cluster is not told of", action)
		}
	}
}

// TestIDsOfStoredDeletions verifies that a deletion keeps its ID if an earlier release stored it, without a UID.
func TestIDsOfStoredDeletions(t *testing.T) {
	t.Parallel()
	c := readyChange()
	c.Action = clusterworker.ShootDeleted
	got := c.ToChangeEvent()
	same := got
	same.ID, same.Session, same.Timestamp = "", c.ClusterID, time.Time{}
	if want := changeevent.ID(same); got.ID != want {
		t.Errorf("id %q, want %q", got.ID, want)
	}
}

// TestIDsTellApart holds that no two changes share an id that differ in what
// makes them two.
func TestIDsTellApart(t *testing.T) {
	t.Parallel()
	actions := []clusterworker.Action{
		clusterworker.ShootCreated, clusterworker.ShootUpdated, clusterworker.ShootReady, clusterworker.ShootFailed, clusterworker.ShootDeleted,
	}
	type key struct {
		id, uid    string
		action     clusterworker.Action
		generation int64
		at         int64
	}
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) (clusterworker.Change, key) {
			c := readyChange()
			c.ClusterID = rapid.SampledFrom([]string{"c", "c.1", "1"}).Draw(t, label+" cluster")
			c.Action = rapid.SampledFrom(actions).Draw(t, label+" action")
			c.Generation = rapid.Int64Range(1, 12).Draw(t, label+" generation")
			c.At = at.Add(time.Duration(rapid.IntRange(0, 2).Draw(t, label+" time")) * time.Second)
			if c.Action == clusterworker.ShootCreated || c.Action == clusterworker.ShootDeleted {
				c.ShootUID = rapid.SampledFrom([]string{"1", "2"}).Draw(t, label+" uid")
			}
			k := key{c.ClusterID, c.ShootUID, c.Action, c.Generation, c.At.UnixNano()}
			if c.ShootUID != "" {
				k.generation, k.at = 0, 0
			}
			return c, k
		}
		one, oneKey := draw("one")
		two, twoKey := draw("two")
		if same := one.ToChangeEvent().ID == two.ToChangeEvent().ID; same != (oneKey == twoKey) {
			t.Fatalf("same id is %t for\n%+v\n%+v", same, one, two)
		}
	})
}
