package pgstore_test

import (
	"testing"

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

// TestAfterARestore covers which generations a row has from before a restore, and the
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
	wantKnown := func(reason string, c clusterworker.Claim, known, generation int64) {
		t.Helper()
		if c.KnownGeneration != known || c.Generation != generation {
			t.Errorf("%s: generation %d, known %d, want %d and %d", reason, c.Generation, c.KnownGeneration, generation, known)
		}
	}
	wantKnown("the first claim", first, 1, 1)
	c := edit()
	wantKnown("an edit", c, 1, 2)
	b.complete(done(c))
	c = edit()
	wantKnown("another edit of the same history", c, 1, 3)
	b.complete(done(c))

	b.exec(`insert into tenant.restores default values`)
	b.exec(`update tenant.cluster_sync set synced = null, due_at = now()`)
	restored := b.claimOne()
	wantKnown("without an edit", restored, 3, 3)
	if restored.History == c.History || restored.History == "" {
		t.Errorf("the histories are %q and %q", c.History, restored.History)
	}
	b.complete(done(restored))
	c = edit()
	wantKnown("an edit after the restore", c, 3, 4)
	b.complete(done(c))
	c = edit()
	wantKnown("the next", c, 3, 5)
	b.complete(done(c))

	b.exec(`select tenant.overwrite_shoot($1)`, id)
	wantKnown("overwritten", b.claimOne(), 1000005, 1000005)
}
