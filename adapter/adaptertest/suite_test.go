package adaptertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/fleetloop/fleetloop/adapter"
	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start")) // started by an init function of the Pub/Sub client
}

// A cloud is what an adapter works on: records by the id of their resource.
type cloud struct {
	mu      sync.Mutex
	records map[string][]string
	broken  bool
}

var errBroken = errors.New("the cloud does not answer")

func (c *cloud) do(f func(map[string][]string)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken {
		return errBroken
	}
	f(c.records)
	return nil
}

// A dns is an adapter that keeps one record for each resource. Its fields plant one mistake each.
type dns struct {
	*cloud

	silentWhenDone, createsAgain, addsAgain, ignoresOthers, ignoresNewSpec            bool
	neverFinalizes, finalizesAlways, waitsToDelete, deletesOnce, leavesRecords        bool
	hidesErrors, givesUp, ignoresContext, keepsState, unknownWhileWaiting, illWaiting bool
	doesNothing, neverUpdates, hidesCleanupErrors, marksPermanent                     bool

	failed bool
	known  map[string]bool
}

// Reconcile implements adapter.Reconciler.
func (d *dns) Reconcile(ctx context.Context, r adapter.Resource) (adapter.Report, error) {
	switch {
	case d.ignoresContext:
		<-make(chan struct{})
	case d.givesUp && d.failed:
		return adapter.Waiting("gave up"), nil
	case d.finalizesAlways:
		return adapter.Finalized("done"), nil
	case r.Deleting() && (!d.waitsToDelete || r.IsAvailable("validation")):
		return d.clean(r)
	case !d.ignoresOthers && !r.IsAvailable("validation"):
		return d.wait(), nil
	case d.ignoresNewSpec && r.Generation > 1:
		return adapter.Waiting("not mine"), nil
	}
	done := false
	err := d.do(func(records map[string][]string) {
		record := string(r.Spec)
		done = len(records[r.ID]) > 0 && (d.neverUpdates || slices.Contains(records[r.ID], record))
		if d.keepsState {
			done = d.known[r.ID]
			d.known[r.ID] = true
		}
		switch {
		case d.doesNothing:
		case d.addsAgain, d.keepsState && !done:
			records[r.ID] = append(records[r.ID], record)
		case !done:
			records[r.ID] = []string{record}
		}
	})
	switch {
	case err != nil && d.marksPermanent:
		return adapter.Report{}, adapter.Permanent(err)
	case err != nil && d.hidesErrors:
	case err != nil:
		d.failed = true
		return adapter.Report{}, err
	case done && d.silentWhenDone:
		return adapter.Report{}, nil
	case done && d.createsAgain:
		return adapter.Report{}, errors.New("the record already exists")
	}
	return adapter.Available("Record exists"), nil
}

func (d *dns) wait() adapter.Report {
	r := adapter.Waiting("Waiting for validation to complete")
	if d.unknownWhileWaiting {
		r.Conditions[0].Status = v1.ConditionUnknown
	}
	if d.illWaiting {
		r.Conditions = append(r.Conditions, v1.ReportCondition{Type: v1.ConditionHealth, Status: v1.ConditionFalse})
	}
	return r
}

func (d *dns) clean(r adapter.Resource) (adapter.Report, error) {
	found := false
	err := d.do(func(records map[string][]string) {
		if found = len(records[r.ID]) > 0; !d.leavesRecords {
			delete(records, r.ID)
		}
	})
	switch {
	case d.hidesCleanupErrors:
		err = nil
	case d.neverFinalizes:
		return adapter.InProgress("deleting"), err
	case !found && d.deletesOnce:
		return adapter.Report{}, errors.New("the record does not exist")
	}
	return adapter.Finalized("Record is deleted"), err
}

func newSuite(plant func(*dns)) Suite {
	c := &cloud{records: map[string][]string{}}
	breakIt := func(broken bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.broken = broken
	}
	return Suite{
		Name: "dns", After: []string{"validation"}, Timeout: time.Second,
		Spec: json.RawMessage(`{"size":1}`), NewSpec: json.RawMessage(`{"size":2}`),
		Open: func() adapter.Reconciler {
			d := &dns{cloud: c, known: map[string]bool{}}
			plant(d)
			return d
		},
		Effects: func(id string) string {
			c.mu.Lock()
			defer c.mu.Unlock()
			return fmt.Sprint(c.records[id])
		},
		Break: func() func() {
			breakIt(true)
			return func() { breakIt(false) }
		},
	}
}

func TestRightAdapterPasses(t *testing.T) {
	Run(t, newSuite(func(*dns) {}))
}

// TestSmallSuitePasses runs the suite with the required field only.
func TestSmallSuitePasses(t *testing.T) {
	Run(t, Suite{Open: func() adapter.Reconciler {
		return adapter.ReconcilerFunc(func(_ context.Context, r adapter.Resource) (adapter.Report, error) {
			if r.Deleting() {
				return adapter.Finalized("done"), nil
			}
			return adapter.Available("done"), nil
		})
	}})
}

// TestLabels runs the suite with an adapter that needs a label.
func TestLabels(t *testing.T) {
	Run(t, Suite{Timeout: time.Second, Labels: map[string]string{"region": "eu-west"}, Open: func() adapter.Reconciler {
		return adapter.ReconcilerFunc(func(_ context.Context, r adapter.Resource) (adapter.Report, error) {
			switch {
			case r.Deleting():
				return adapter.Finalized("done"), nil
			case r.Labels["region"] == "":
				return adapter.Waiting("no label region"), nil
			}
			return adapter.Available("done in " + r.Labels["region"]), nil
		})
	}})
}

// TestWrongAdaptersFail plants one mistake at a time, and holds which checks find it.
func TestWrongAdaptersFail(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		plant func(*dns)
		found string // the checks that fail, in order
	}{
		"silentWhenDone":      {func(d *dns) { d.silentWhenDone = true }, "ReportsWhenNothingToDo RepeatedEventIsHarmless CrashBeforeReport FailureIsReportedAndRetried"},
		"createsAgain":        {func(d *dns) { d.createsAgain = true }, "ReportsWhenNothingToDo RepeatedEventIsHarmless CrashBeforeReport FailureIsReportedAndRetried"},
		"addsAgain":           {func(d *dns) { d.addsAgain = true }, "ReportsWhenNothingToDo RepeatedEventIsHarmless CrashBeforeReport"},
		"keepsState":          {func(d *dns) { d.keepsState = true }, "ReportsNewGeneration RepeatedEventIsHarmless CrashBeforeReport"},
		"ignoresOthers":       {func(d *dns) { d.ignoresOthers = true }, "WaitsForOthers"},
		"ignoresNewSpec":      {func(d *dns) { d.ignoresNewSpec = true }, "ReportsNewGeneration"},
		"unknownWhileWaiting": {func(d *dns) { d.unknownWhileWaiting = true }, "WaitsForOthers"},
		"illWaiting":          {func(d *dns) { d.illWaiting = true }, "WaitsForOthers"},
		"neverFinalizes":      {func(d *dns) { d.neverFinalizes = true }, "DeletionEndsInFinalized DeletionBeforeAnyWork CrashBeforeFinalized FailedDeletionIsNotFinalized"},
		"finalizesAlways":     {func(d *dns) { d.finalizesAlways = true }, "BecomesAvailable ReportsNewGeneration WaitsForOthers ReportsWhenNothingToDo RepeatedEventIsHarmless CrashBeforeReport DeletionEndsInFinalized CrashBeforeFinalized FailureIsReportedAndRetried FailedDeletionIsNotFinalized SeveralResources"},
		"waitsToDelete":       {func(d *dns) { d.waitsToDelete = true }, "DeletionEndsInFinalized DeletionBeforeAnyWork CrashBeforeFinalized FailedDeletionIsNotFinalized"},
		"deletesOnce":         {func(d *dns) { d.deletesOnce = true }, "DeletionBeforeAnyWork CrashBeforeFinalized"},
		"leavesRecords":       {func(d *dns) { d.leavesRecords = true }, "DeletionEndsInFinalized"},
		"hidesErrors":         {func(d *dns) { d.hidesErrors = true }, "FailureIsReportedAndRetried"},
		"doesNothing":         {func(d *dns) { d.doesNothing = true }, "BecomesAvailable ReportsNewGeneration CrashBeforeFinalized"},
		"neverUpdates":        {func(d *dns) { d.neverUpdates = true }, "ReportsNewGeneration"},
		"hidesCleanupErrors":  {func(d *dns) { d.hidesCleanupErrors = true }, "FailedDeletionIsNotFinalized"},
		"marksPermanent":      {func(d *dns) { d.marksPermanent = true }, "FailureIsReportedAndRetried"},
		"givesUp":             {func(d *dns) { d.givesUp = true }, "FailureIsReportedAndRetried"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var found []string
			for _, c := range checks() {
				synctest.Test(t, func(t *testing.T) {
					if err := newSuite(tc.plant).runCheck(t.Context(), c); err != nil {
						found = append(found, c.name)
						t.Logf("%s: %v", c.name, err)
					}
				})
			}
			if got := strings.Join(found, " "); got != tc.found {
				t.Errorf("found by %q, want %q", got, tc.found)
			}
		})
	}
}

// TestStuckAdapterFails plants an adapter that never returns. It leaks its goroutine, so it blocks on a
// channel that the test closes.
func TestStuckAdapterFails(t *testing.T) {
	t.Parallel()
	end := make(chan struct{})
	stuck := adapter.ReconcilerFunc(func(context.Context, adapter.Resource) (adapter.Report, error) {
		<-end
		return adapter.Report{}, errors.New("ended")
	})
	s := Suite{Timeout: 100 * time.Millisecond, Open: func() adapter.Reconciler { return stuck }}
	failed := 0
	for _, c := range checks() {
		if c.name != "BecomesAvailable" && c.name != "CancelledContext" {
			continue
		}
		err := s.runCheck(t.Context(), c)
		if err == nil || !strings.Contains(err.Error(), "context end") {
			t.Errorf("%s = %v, want an error about the context", c.name, err)
		}
		failed++
	}
	close(end)
	if failed != 2 {
		t.Errorf("%d checks ran, want 2", failed)
	}
}

// TestFakeStoresReportsLikeTheFleetAPI compares the reports that the fake stores with those that the fleet API
// stores.
func TestFakeStoresReportsLikeTheFleetAPI(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newFakeFleet(v1.CollectionClusters)
		random := rand.New(rand.NewPCG(1, 2))
		var last *v1.AdapterStatus
		for i := range 5000 {
			time.Sleep(time.Second)
			observed := time.Now().Add(-time.Duration(random.IntN(4)) * time.Second).UTC()
			report := v1.Report{
				Adapter: "dns", ObservedGeneration: 1 + random.Int64N(4), ObservedTime: &observed,
				Conditions: []v1.ReportCondition{{Type: v1.ConditionAvailable, Status: v1.ConditionTrue}},
			}
			generation := 1 + random.Int64N(3)
			w.resources["r"] = v1.Resource{ID: "r", Generation: generation}
			if i%50 == 0 {
				last = nil
				delete(w.statuses, "r")
			}
			status, verdict := fleetapi.DecideReport(report, last, generation, time.Now())
			stored, err := w.Report(t.Context(), v1.CollectionClusters, "r", report)
			if err != nil || stored != (verdict == fleetapi.ReportStored) {
				t.Fatalf("report %d: stored %v, %v; the fleet API says %s", i, stored, err, verdict)
			}
			if stored {
				last = &status
			}
		}
	})
}
