package cli

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// makeReady lets the second cluster become ready for what it should be now.
func makeReady(f *fakeAPI) {
	f.items[1].Status.Phase, f.items[1].Status.ObservedGeneration = v1.PhaseReady, f.items[1].Generation
}

func removeItem(name string) func(*fakeAPI) {
	return func(f *fakeAPI) {
		f.items = slices.DeleteFunc(f.items, func(r v1.Resource) bool { return r.Name == name })
	}
}

func TestWait(t *testing.T) {
	t.Parallel()
	down := func(f *fakeAPI) { f.down = syscall.ECONNREFUSED }
	up := func(f *fakeAPI) { f.down = nil }
	broken := func(status int) func(*fakeAPI) {
		return func(f *fakeAPI) { f.before = answering(status, v1.Problem{}) }
	}
	cases := map[string]struct {
		reason string
		args   []string
		at     map[time.Duration]func(*fakeAPI)
		took   time.Duration
		code   int
		stdout string
		says   string
	}{
		"Already":   {"what is as wanted is found so at once", []string{"cluster", "c1", "--for=phase=Ready"}, nil, 0, CodeOK, "cluster/c1 reached phase Ready\n", ""},
		"ComesLate": {"it is looked at every second", []string{"cluster", "c2", "--for=phase=ready"}, map[time.Duration]func(*fakeAPI){7500 * time.Millisecond: makeReady}, 8 * time.Second, CodeOK, "cluster/c2 reached phase Ready\n", ""},
		"Slower":    {"or as often as asked", []string{"cluster", "c2", "--for=phase=Ready", "--interval", "5s"}, map[time.Duration]func(*fakeAPI){7 * time.Second: makeReady}, 10 * time.Second, CodeOK, "cluster/c2 reached phase Ready\n", ""},
		"ReadyForOld": {
			"ready for an older spec is not ready",
			[]string{"cluster", "c2", "--for=phase=Ready", "--timeout=3s"},
			map[time.Duration]func(*fakeAPI){time.Second / 2: func(f *fakeAPI) { f.items[1].Status.Phase = v1.PhaseReady }},
			3 * time.Second, CodeTimeout, "", "cluster/c2 is Ready",
		},
		"TooLate":       {"a timeout has its own code and says how things stand", []string{"clusters", "c1", "c2", "--for=phase=Ready", "--timeout=10s"}, nil, 10 * time.Second, CodeTimeout, "cluster/c1 reached phase Ready\n", "wait for phase Ready: timed out after 10s: cluster/c2 is Provisioning"},
		"Once":          {"no time is one look", []string{"cluster", "c2", "--for=phase=Ready", "--timeout=0"}, nil, 0, CodeTimeout, "", "cluster/c2 is Provisioning"},
		"Condition":     {"a condition", []string{"cluster", "c2", "--for=condition=Reconciled=False"}, nil, 0, CodeOK, "cluster/c2 reached condition Reconciled False\n", ""},
		"ConditionLate": {"its status is said", []string{"cluster", "c2", "--for=condition=Reconciled", "--timeout=1s"}, nil, time.Second, CodeTimeout, "", "cluster/c2 is Reconciled False (ReconciledMissingAdapters)"},
		"ConditionNone": {"it is not there at all", []string{"cluster", "c1", "--for=condition=Reconciled", "--timeout=1s"}, nil, time.Second, CodeTimeout, "", "cluster/c1 is without condition Reconciled"},
		"Selected":      {"what labels select", []string{"clusters", "-l", "tier=gold", "--for=phase=Ready"}, nil, 0, CodeOK, "cluster/c1 reached phase Ready\n", ""},
		"All":           {"all there are", []string{"clusters", "--all", "--for=phase=Ready"}, map[time.Duration]func(*fakeAPI){500 * time.Millisecond: makeReady}, time.Second, CodeOK, "cluster/c1 reached phase Ready\ncluster/c2 reached phase Ready\n", ""},
		"Deleted":       {"until it is gone", []string{"cluster", "c1", "--for=delete"}, map[time.Duration]func(*fakeAPI){2500 * time.Millisecond: removeItem("c1")}, 3 * time.Second, CodeOK, "cluster/c1 deleted\n", ""},
		"GoneBefore":    {"what is not there is gone", []string{"clusters", "nope", "c1", "--for=delete"}, map[time.Duration]func(*fakeAPI){500 * time.Millisecond: removeItem("c1")}, time.Second, CodeOK, "cluster/c1 deleted\n", ""},
		"NoneLeft":      {"nothing is left to wait for", []string{"clusters", "-l", "a=b", "--for=delete"}, nil, 0, CodeOK, "", ""},
		"Vanishes":      {"what is gone never gets ready", []string{"cluster", "c2", "--for=phase=Ready"}, map[time.Duration]func(*fakeAPI){500 * time.Millisecond: removeItem("c2")}, time.Second, CodePrecondition, "", "cluster/c2 was deleted"},
		"Missing":       {"nor what never was", []string{"cluster", "nope", "--for=phase=Ready"}, nil, 0, CodePrecondition, "", "not found"},
		"Outage": {
			"an outage is waited out",
			[]string{"cluster", "c2", "--for=phase=Ready"},
			map[time.Duration]func(*fakeAPI){time.Second / 2: down, 5 * time.Second / 2: up, 9 * time.Second / 2: makeReady},
			5 * time.Second, CodeOK, "cluster/c2 reached phase Ready\n", "",
		},
		"OutageTooLong": {"and is named if it lasts", []string{"cluster", "c2", "--for=phase=Ready", "--timeout=3s"}, map[time.Duration]func(*fakeAPI){time.Second / 2: down}, 3 * time.Second, CodeTimeout, "", "connection refused"},
		"Refused":       {"what would be refused again is not waited out", []string{"cluster", "c2", "--for=phase=Ready"}, map[time.Duration]func(*fakeAPI){time.Second / 2: broken(http.StatusForbidden)}, time.Second, CodeFailed, "", "403"},
		"NoGoal":        {"say what for", []string{"cluster", "c2"}, nil, 0, CodeUsage, "", "--for=phase=Ready"},
		"BadGoal":       {"say what for", []string{"cluster", "c2", "--for=condition="}, nil, 0, CodeUsage, "", `--for="condition=" is invalid`},
		"NoOne":         {"say which", []string{"clusters", "--for=delete"}, nil, 0, CodeUsage, "", "--all"},
		"BadPhase":      {"it would never come", []string{"cluster", "c2", "--for=phase=Perfect"}, nil, 0, CodeUsage, "", `unknown phase "Perfect"; use one of Pending, Provisioning, Ready, Failed, Deleting`},
		"BadTimeout":    {"a sign is a mistake", []string{"cluster", "c1", "--for=delete", "--timeout=-1s"}, nil, 0, CodeUsage, "", "negative"},
		"BadInterval":   {"a busy loop", []string{"cluster", "c1", "--for=delete", "--interval=0"}, nil, 0, CodeUsage, "", "positive"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFleet()
				for after, change := range tc.at {
					defer time.AfterFunc(after, func() { f.changeItem(change) }).Stop()
				}
				begun := time.Now()
				got := run{args: append([]string{"wait"}, tc.args...)}.runCLI(t, f)
				if took := time.Since(begun); took != tc.took {
					t.Errorf("%s: took %s, want %s", tc.reason, took, tc.took)
				}
				if got.code != tc.code || got.stdout != tc.stdout || !strings.Contains(got.stderr, tc.says) {
					t.Errorf("%s: exit code %d, stdout %q, stderr %q\nwant %d, %q, %q", tc.reason, got.code, got.stdout, got.stderr, tc.code, tc.stdout, tc.says)
				}
			})
		})
	}
}

func TestDeleteWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		time.AfterFunc(3*time.Second/2, func() { f.changeItem(removeItem("c1")) })
		got := run{args: []string{"delete", "cluster", "c1", "--wait"}}.runCLI(t, f)
		if got.code != 0 || got.stdout != "cluster/c1 deletion requested\ncluster/c1 deleted\n" {
			t.Errorf("exit code %d, stdout %q, stderr %q", got.code, got.stdout, got.stderr)
		}
		got = run{args: []string{"delete", "cluster", "c2", "--wait", "--timeout=5s"}}.runCLI(t, f)
		if got.code != CodeTimeout || !strings.Contains(got.stderr, "cluster/c2 is Deleting") {
			t.Errorf("exit code %d, stderr %q", got.code, got.stderr)
		}
	})
}

func TestInterruption(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]int{"wait cluster c2 --for=phase=Ready": CodeInterrupted, "watch clusters": CodeOK} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(2500*time.Millisecond, func() { cancel(fmt.Errorf("terminated by a signal")) })
			got := run{args: strings.Fields(args), ctx: ctx}.runCLI(t, newFleet())
			if got.code != want {
				t.Errorf("%s: exit code %d, want %d; %s", args, got.code, want, got.stderr)
			}
		})
	}
}

// TestWatch plays a fleet that changes while it is watched.
func TestWatch(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		args   []string
	}{
		"watch-clusters":  {"rows that changed", []string{"watch", "clusters"}},
		"watch-get":       {"the other spelling", []string{"get", "clusters", "-w", "--no-headers", "-l", "tier"}},
		"watch-json":      {"every change, one a line", []string{"watch", "cluster", "c2", "-o", "json"}},
		"watch-name":      {"names", []string{"watch", "clusters", "-o", "name"}},
		"watch-named":     {"it ends with the last of those named", []string{"watch", "cluster", "c1"}},
		"watch-nodepools": {"children", []string{"watch", "nodepools", "--cluster", "c1"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFleet()
				f.items[1].Status.Conditions = nil
				steps := []func(*fakeAPI){
					func(f *fakeAPI) { f.items[0].Status.LastUpdatedTime = now }, // a report alone
					makeReady,
					func(f *fakeAPI) { f.down = syscall.ECONNREFUSED },
					func(*fakeAPI) {},
					func(f *fakeAPI) { f.down = nil },
					func(f *fakeAPI) { f.items = append(f.items, newResource(v1.KindCluster, 5, "c3")) },
					func(f *fakeAPI) { f.items[2].Status.Phase = v1.PhaseFailed },
					removeItem("c1"),
				}
				for n, step := range steps {
					time.AfterFunc(time.Duration(n)*time.Second+time.Second/2, func() { f.changeItem(step) })
				}
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				begun := time.Now()
				got := run{args: tc.args, ctx: ctx}.runCLI(t, f)
				got.args = tc.args
				wantGolden(t, name, fmt.Sprintf("%s(ended after %s)\n", got.outputText(), time.Since(begun)))
			})
		})
	}
}

func TestWatchRefuses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		args   string
		code   int
		says   string
	}{
		"YAML":     {"a list without an end is no YAML", "watch clusters -o yaml", CodeUsage, "unknown output format"},
		"Limit":    {"which of them", "get clusters -w --limit 3", CodeUsage, "cannot be combined"},
		"Interval": {"a busy loop", "watch clusters --interval 0", CodeUsage, "positive"},
		"Kinds":    {"one table", "watch cluster/c1 nodepool/c1/workers", CodeUsage, "one kind"},
		"Missing":  {"nothing to watch", "watch cluster nope", CodePrecondition, "not found"},
		"Parent":   {"nowhere to watch", "watch nodepools --cluster nope", CodePrecondition, "not found"},
		"Selector": {"it would be refused again", "watch clusters -l a=(", CodeFailed, "400"},
	}
	for name, tc := range cases {
		got := run{args: strings.Fields(tc.args)}.runCLI(t, newFleet())
		if got.code != tc.code || !strings.Contains(got.stderr, tc.says) {
			t.Errorf("%s: %s: exit code %d, stderr %q", name, tc.reason, got.code, got.stderr)
		}
	}
}
