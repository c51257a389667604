package fleetapi_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

// startRoller runs the roller of a fixture until the test ends.
func (f *fixture) startRoller(labels ...string) {
	f.Helper()
	ctx, cancel := context.WithCancel(f.Context())
	done := make(chan error, 1)
	r := pgstore.NewRollupCounter(pgtest.Open(f.T, f.database), labels, slog.New(slog.DiscardHandler))
	go func() { done <- r.Run(ctx) }()
	f.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			f.Errorf("run the roller: %v", err)
		}
	})
}

// summary returns the first summary that includes all changes up to now.
func (f *fixture) summary() v1.Summary {
	f.Helper()
	began := time.Now()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range 1000 {
		a := f.do("GET", "summary", nil)
		if a.status == http.StatusOK {
			if s := read[v1.Summary](a); s.AsOf.After(began) {
				return s
			}
		}
		<-tick.C
	}
	f.Fatal("the counts stay old")
	return v1.Summary{}
}

//nolint:gosec // tokens of a test
const summaryTokens = `tokens:
- {token: ann, subject: ann, tenant: a}
- {token: bob, subject: bob, tenant: b}
- {token: vera, subject: vera, roles: [viewer]}
- {token: sys, subject: sys, roles: [system]}
`

func TestSummaryCountsWhatACallerMayRead(t *testing.T) {
	f := newFixtureWith(t, options{cfg: defaults(), tokens: summaryTokens})
	f.as("ann").do("GET", "summary", nil).problem(503, "unavailable", "first time")
	ann, bob, sys := f.as("ann"), f.as("bob"), f.as("sys")
	one := ann.create("clusters", "c-one", map[string]string{"region": "eu", "env": "prod"})
	two := ann.create("clusters", "c-two", map[string]string{"region": "eu"})
	np := ann.create("clusters/"+one.ID+"/nodepools", "np-one", map[string]string{"region": "eu"})
	other := bob.create("clusters", "c-other", map[string]string{"region": "us"})
	for _, adapter := range []string{"validation", "dns"} {
		sys.report("clusters/"+two.ID, adapter, 1)
	}
	failing := reportOf("dns", 1, "-"+v1.ConditionAvailable)
	failing.Conditions[0].Reason, failing.Conditions[0].Message = "NoZone", `the zone "c-one.example" of c-one is gone`
	sys.do("PUT", "clusters/"+one.ID+"/statuses", failing).want(201)
	failing.Conditions[0].Message = `the zone "x" of c-other is gone`
	sys.do("PUT", "clusters/"+other.ID+"/statuses", failing).want(201)
	conn := f.connect()
	setSync(t, conn, one.ID, "synced = null, sync_attempts = 9, sync_error = 'quota of 7 exceeded for c-one', unsynced_since = '2026-03-01T12:00:00Z'")
	setSync(t, conn, two.ID, rowSynced)
	setSync(t, conn, other.ID, "synced = null, sync_attempts = 8, sync_error = 'quota of 9 exceeded for c-other', unsynced_since = '2026-03-02T12:00:00Z'")
	f.startRoller("region", "env")

	since := func(id string) time.Time { return sys.get("clusters/" + id).Status.LastTransitionTime }
	counts := func(total int64, phases map[v1.Phase]int64) v1.LabelSummary {
		return v1.LabelSummary{Total: total, Phases: phases}
	}
	oldest := func(r v1.Resource, phase v1.Phase) *v1.OldestResource {
		return &v1.OldestResource{ID: r.ID, Name: r.Name, Phase: phase, Since: since(r.ID)}
	}
	pool := &v1.OldestResource{ID: np.ID, Name: np.Name, Phase: v1.PhasePending, Since: np.Status.LastTransitionTime}
	at := func(day int) time.Time { return time.Date(2026, 3, day, 12, 0, 0, 0, time.UTC) }
	const zone = "NoZone: the zone <value> of <name> is gone"
	reason := func(text, source string, count int64, r v1.Resource) v1.SummaryReason {
		return v1.SummaryReason{Reason: text, Source: source, Count: count, Example: v1.ReasonExample{Kind: v1.KindCluster, ID: r.ID, Name: r.Name}}
	}
	unready, ready := v1.PhaseProvisioning, v1.PhaseReady
	want := map[string]v1.Summary{
		"ann": {
			Kinds: map[string]v1.KindSummary{
				"clusters":  {LabelSummary: counts(2, map[v1.Phase]int64{unready: 1, ready: 1}), OldestNotReady: oldest(one, unready)},
				"nodepools": {LabelSummary: counts(1, map[v1.Phase]int64{v1.PhasePending: 1}), OldestNotReady: pool},
			},
			Sync:       v1.SyncSummary{States: map[v1.SyncState]int64{v1.SyncStuck: 1, v1.SyncSynced: 1}, OldestUnsynced: &v1.OldestResource{ID: one.ID, Name: one.Name, Phase: unready, Since: at(1)}},
			TopReasons: []v1.SummaryReason{reason(zone, "adapter:dns", 1, one), reason("quota of <n> exceeded for <name>", "sync", 1, one)},
			Labels: map[string]map[string]v1.LabelSummary{
				"region": {"eu": counts(2, map[v1.Phase]int64{unready: 1, ready: 1})},
				"env":    {"prod": counts(1, map[v1.Phase]int64{unready: 1})},
			},
		},
		"bob": {
			Kinds: map[string]v1.KindSummary{
				"clusters":  {LabelSummary: counts(1, map[v1.Phase]int64{unready: 1}), OldestNotReady: oldest(other, unready)},
				"nodepools": {LabelSummary: counts(0, map[v1.Phase]int64{})},
			},
			Sync:       v1.SyncSummary{States: map[v1.SyncState]int64{v1.SyncStuck: 1}, OldestUnsynced: &v1.OldestResource{ID: other.ID, Name: other.Name, Phase: unready, Since: at(2)}},
			TopReasons: []v1.SummaryReason{reason(zone, "adapter:dns", 1, other), reason("quota of <n> exceeded for <name>", "sync", 1, other)},
			Labels:     map[string]map[string]v1.LabelSummary{"region": {"us": counts(1, map[v1.Phase]int64{unready: 1})}, "env": {}},
		},
		"vera": {
			Kinds: map[string]v1.KindSummary{
				"clusters":  {LabelSummary: counts(3, map[v1.Phase]int64{unready: 2, ready: 1}), OldestNotReady: oldest(one, unready)},
				"nodepools": {LabelSummary: counts(1, map[v1.Phase]int64{v1.PhasePending: 1}), OldestNotReady: pool},
			},
			Sync:       v1.SyncSummary{States: map[v1.SyncState]int64{v1.SyncStuck: 2, v1.SyncSynced: 1}, OldestUnsynced: &v1.OldestResource{ID: one.ID, Name: one.Name, Phase: unready, Since: at(1)}},
			TopReasons: []v1.SummaryReason{reason(zone, "adapter:dns", 2, one), reason("quota of <n> exceeded for <name>", "sync", 2, one)},
			Labels: map[string]map[string]v1.LabelSummary{
				"region": {"eu": counts(2, map[v1.Phase]int64{unready: 1, ready: 1}), "us": counts(1, map[v1.Phase]int64{unready: 1})},
				"env":    {"prod": counts(1, map[v1.Phase]int64{unready: 1})},
			},
		},
	}
	for token, want := range want {
		if diff := cmp.Diff(want, f.as(token).summary(), cmpopts.IgnoreFields(v1.Summary{}, "AsOf"), cmpopts.IgnoreFields(v1.SummaryReason{}, "Since")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", token, diff)
		}
	}
	f.do("GET", "summary", nil).problem(401, "unauthenticated", "")
	ann.do("GET", "summary?strict=true&x=1", nil).problem(400, "invalid_query", "x")
}

// TestSummaryLimitsLabelValues checks that a label with many values does not make a summary large.
func TestSummaryLimitsLabelValues(t *testing.T) {
	f := newFixture(t)
	for i := range 103 {
		f.create("clusters", fmt.Sprintf("c-%03d", i), map[string]string{"region": fmt.Sprintf("r-%03d", i)})
	}
	f.create("clusters", "c-more", map[string]string{"region": "r-102"})
	f.startRoller("region")
	s := f.summary()
	if n := len(s.Labels["region"]); n != fleetapi.MaxSummaryValues || s.MoreLabelValues["region"] != 3 || s.Labels["region"]["r-102"].Total != 2 {
		t.Errorf("%d values, %d more; %+v", n, s.MoreLabelValues["region"], s.Labels["region"]["r-102"])
	}
}

func TestSummaryLabelsAreChecked(t *testing.T) {
	for name, keys := range map[string][]string{
		"Key": {"not a key"}, "Twice": {"env", "env"}, "Many": {"a", "b", "c", "d", "e", "f", "g", "h", "i"},
	} {
		if err := fleetapi.ValidateSummaryLabels(keys); err == nil {
			t.Errorf("%s: %v is accepted", name, keys)
		}
	}
	if err := fleetapi.ValidateSummaryLabels([]string{"env", "example.com/region"}); err != nil {
		t.Error(err)
	}
}
