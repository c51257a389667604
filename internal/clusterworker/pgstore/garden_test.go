package pgstore_test

import "testing"

// TestTheFirstGardenStays holds that a worker that is pointed elsewhere is
// told where the Shoots are, and that only who says so takes them along.
func TestTheFirstGardenStays(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	if got, err := b.store.Garden(t.Context()); err != nil || got != "" {
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
		if got, err := b.store.TakeGarden(t.Context(), step.garden, step.anew); err != nil || got != step.want {
			t.Errorf("%s: %q, %v, want %q", step.reason, got, err, step.want)
		}
	}
	if got, err := b.store.Garden(t.Context()); err != nil || got != "garden-b" {
		t.Errorf("in the end: %q, %v", got, err)
	}
}

// TestAfterARestore holds what an operator does when the database counts
// generations that Gardener has long seen: everything is sent again, and later.
func TestAfterARestore(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.cluster("one")
	b.complete(done(b.claimOne()))
	b.exec(`update tenant.cluster_sync set generation = generation + 1000000, synced = null, due_at = now(), unsynced_since = coalesce(unsynced_since, now())`)
	if c := b.claimOne(); c.Generation != 1000001 {
		t.Errorf("claimed generation %d, want one above all others", c.Generation)
	}
}
