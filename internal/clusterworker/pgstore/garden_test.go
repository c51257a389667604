package pgstore_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/clusterworker"
)

// TestTheFirstGardenStays covers that a worker with another garden learns the recorded
// one, and that only an explicit request replaces it.
func TestTheFirstGardenStays(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	if got, err := b.store.GetRecordedGarden(t.Context()); err != nil || got != "" {
		t.Errorf("at first: %q, %v", got, err)
	}
	for _, step := range []struct {
		reason, garden string
		anew           bool
		want           string
	}{
		{"the first says where", "garden-a", false, "garden-a"},
		{"the same again", "garden-a", false, "garden-a"},
		{"another by mistake", "garden-b", false, "garden-a"},
		{"another on purpose", "garden-b", true, "garden-b"},
		{"the first is now the other", "garden-a", false, "garden-b"},
	} {
		if got, err := b.store.RecordGardenIfNone(t.Context(), step.garden, step.anew); err != nil || got != step.want {
			t.Errorf("%s: %q, %v, want %q", step.reason, got, err, step.want)
		}
	}
	if got, err := b.store.GetRecordedGarden(t.Context()); err != nil || got != "garden-b" {
		t.Errorf("in the end: %q, %v", got, err)
	}
}

// TestAfterARestore covers which generations a row knows to have been sent in which history, and the
// action of an operator who has a Shoot overwritten.
func TestAfterARestore(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	id := b.cluster("one")
	first := b.claimOne()
	b.complete(done(first))
	edit := func() clusterworker.Claim {
		b.edit(id)
		return b.claimOne()
	}
	wantSent := func(reason string, c clusterworker.Claim, synced int64, sent map[string]int64) {
		t.Helper()
		if diff := cmp.Diff(sent, c.Sent); diff != "" || c.SyncedGeneration != synced {
			t.Errorf("%s: synced %d, want %d; sent (-want +got):\n%s", reason, c.SyncedGeneration, synced, diff)
		}
	}
	before := first.History
	wantSent("the first claim", first, 0, map[string]int64{before: 1})
	c := edit()
	wantSent("an edit", c, 1, map[string]int64{before: 2})
	b.complete(failed(c, "503", true, 0))
	b.edit(id)
	wantSent("an edit after a failure", b.claimOne(), 1, map[string]int64{before: 3})

	restoreAndClaim := func() clusterworker.Claim {
		b.exec(`insert into tenant.restores default values`)
		b.exec(`update tenant.cluster_sync set due_at = now()`)
		return b.claimOne()
	}
	c = restoreAndClaim()
	after := c.History
	if after == before || after == "" {
		t.Errorf("the histories are %q and %q", before, after)
	}
	wantSent("a restore before the result", c, 1, map[string]int64{before: 3, after: 3})
	b.edit(id)
	c = restoreAndClaim()
	again := c.History
	wantSent("an edit and another restore", c, 1, map[string]int64{before: 3, after: 3, again: 4})
	b.complete(done(c))
	wantSent("a success", edit(), 4, map[string]int64{again: 5})

	b.exec(`select tenant.overwrite_shoot($1)`, id)
	wantSent("overwritten", b.claimOne(), 4, map[string]int64{"*": 1000005, again: 1000005})
}
