package pgstore_test

import "testing"

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

// TestAfterARestore covers the action of an operator when the database has older
// generations than Gardener: everything is sent again with newer ones.
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
