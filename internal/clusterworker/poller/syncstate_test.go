package poller_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/clusterworker/poller"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestSyncStateOf(t *testing.T) {
	due, later := now, now.Add(time.Minute)
	cases := map[string]struct {
		reason string
		sync   poller.SyncFacts
		want   v1.SyncState
	}{
		"New":            {reason: "nothing was tried", sync: poller.SyncFacts{Due: due}, want: v1.SyncPending},
		"Claimed":        {reason: "the lease lasts", sync: poller.SyncFacts{Claimed: true, Due: later}, want: v1.SyncRunning},
		"LeaseOver":      {reason: "any worker may take it", sync: poller.SyncFacts{Claimed: true, Due: due}, want: v1.SyncPending},
		"Failed":         {reason: "its next try is later", sync: poller.SyncFacts{Attempts: 1, Due: later}, want: v1.SyncBackingOff},
		"DueAgain":       {reason: "any worker may take it", sync: poller.SyncFacts{Attempts: 1, Due: due}, want: v1.SyncPending},
		"AlmostStuck":    {reason: "seven failures are not eight", sync: poller.SyncFacts{Attempts: 7, Due: later}, want: v1.SyncBackingOff},
		"Stuck":          {reason: "somebody should look", sync: poller.SyncFacts{Attempts: 8, Due: later}, want: v1.SyncStuck},
		"StuckAndDue":    {reason: "that does not change because it is tried on", sync: poller.SyncFacts{Attempts: 30, Due: due}, want: v1.SyncStuck},
		"StuckAndTried":  {reason: "a worker is at it", sync: poller.SyncFacts{Attempts: 30, Claimed: true, Due: later}, want: v1.SyncRunning},
		"Outage":         {reason: "what is not held against it is not shown either", sync: poller.SyncFacts{Due: later}, want: v1.SyncPending},
		"Synced":         {reason: "there is nothing to do", sync: poller.SyncFacts{Synced: true, Due: due}, want: v1.SyncSynced},
		"Paused":         {reason: "nothing is done", sync: poller.SyncFacts{Paused: true, Attempts: 9, Due: due}, want: v1.SyncPaused},
		"PausedSynced":   {reason: "an edit would not be sent, which is what matters", sync: poller.SyncFacts{Paused: true, Synced: true}, want: v1.SyncPaused},
		"PausedAtACall":  {reason: "the pause is what somebody asked for", sync: poller.SyncFacts{Paused: true, Claimed: true, Due: later}, want: v1.SyncPaused},
		"DueThisInstant": {reason: "due is from that instant on", sync: poller.SyncFacts{Attempts: 2, Due: now}, want: v1.SyncPending},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, poller.DeriveSyncState(c.sync, now)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}

// A syncRow has the properties of a sync that determine its state. Time is whether the row
// is due.
type syncRow struct {
	paused, synced, claimed, later bool
	edited                         bool // since it was claimed
	attempts                       int
}

func (r syncRow) state() v1.SyncState {
	s := poller.SyncFacts{Paused: r.paused, Synced: r.synced, Claimed: r.claimed, Attempts: r.attempts, Due: now}
	if r.later {
		s.Due = now.Add(time.Second)
	}
	return poller.DeriveSyncState(s, now)
}

// syncEvents are the possible events of a row. An impossible event leaves the row
// unchanged.
func syncEvents() map[string]func(syncRow) syncRow {
	leased := func(r syncRow) bool { return r.claimed && r.later }
	done := func(r syncRow, synced, later bool) syncRow {
		r.claimed, r.synced, r.later = false, synced, later
		return r
	}
	return map[string]func(syncRow) syncRow{
		"edit": func(r syncRow) syncRow {
			r.attempts, r.synced, r.later, r.edited = 0, false, leased(r), true
			return r
		},
		"drift": func(r syncRow) syncRow {
			if r.synced {
				r.synced, r.later = false, false
			}
			return r
		},
		"claim": func(r syncRow) syncRow {
			if !r.synced && !r.paused && !r.later {
				r.claimed, r.later, r.edited = true, true, false
			}
			return r
		},
		"success": func(r syncRow) syncRow {
			if !r.claimed {
				return r
			}
			r.attempts = 0
			return done(r, !r.edited, false)
		},
		"failure": func(r syncRow) syncRow {
			if !r.claimed {
				return r
			}
			if !r.edited {
				r.attempts = min(r.attempts+1, v1.StuckAttempts+1)
			}
			return done(r, false, !r.edited)
		},
		"outage": func(r syncRow) syncRow {
			if !r.claimed {
				return r
			}
			return done(r, false, !r.edited)
		},
		"release": func(r syncRow) syncRow {
			if !r.claimed {
				return r
			}
			return done(r, false, false)
		},
		"time":   func(r syncRow) syncRow { r.later = false; return r },
		"pause":  func(r syncRow) syncRow { r.paused = true; return r },
		"resume": func(r syncRow) syncRow { r.paused = false; return r },
		"retry": func(r syncRow) syncRow {
			if !leased(r) && !r.paused {
				r.later = false
			}
			return r
		},
	}
}

// TestNextSyncStates covers all possible events of a row: the table has all changes of its
// state, and no others.
func TestNextSyncStates(t *testing.T) {
	found := map[v1.SyncState]map[v1.SyncState]bool{}
	seen := map[syncRow]bool{{}: true}
	for queue := []syncRow{{}}; len(queue) > 0; queue = queue[1:] {
		for _, happen := range syncEvents() {
			from, to := queue[0], happen(queue[0])
			if a, b := from.state(), to.state(); a != b {
				if found[a] == nil {
					found[a] = map[v1.SyncState]bool{}
				}
				found[a][b] = true
			}
			if !seen[to] {
				seen[to] = true
				queue = append(queue, to)
			}
		}
	}
	var got []string
	for from, tos := range found {
		for to := range tos {
			got = append(got, string(from)+" --> "+string(to))
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(formatTransitions(poller.ListSyncStates(), poller.ListNextSyncStates), got); diff != "" {
		t.Errorf("(-table +what happens):\n%s", diff)
	}
}
