package poller_test

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/clusterworker/poller"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// newShoot returns a Shoot with an operation "Type State", and conditions as "Type Status".
func newShoot(operation string, conditions ...string) *shoot.Observed {
	o := &shoot.Observed{Name: "eu-we-oyldub", UID: "u", Generation: 3, ObservedGeneration: 3}
	if typ, state, ok := strings.Cut(operation, " "); ok {
		o.LastOperation = &shoot.Operation{Type: typ, State: state, Progress: 43, Description: "Waiting for the\n  infrastructure."}
	}
	for _, c := range conditions {
		typ, state, _ := strings.Cut(c, " ")
		o.Conditions = append(o.Conditions, shoot.Condition{Type: typ, Status: state, Reason: "Because", Message: "it is " + state + "."})
	}
	return o
}

func with(o *shoot.Observed, change func(*shoot.Observed)) *shoot.Observed {
	change(o)
	return o
}

func isDeleting(o *shoot.Observed) { o.Deleting = true }

func quotaExceeded(o *shoot.Observed) {
	o.LastErrors = []shoot.LastError{
		{Description: "quota of  vCPUs\nexceeded", Codes: []string{"ERR_INFRA_QUOTA_EXCEEDED"}},
		{Description: "no subnet"},
	}
}

func TestDeriveStatus(t *testing.T) {
	ever := poller.RowFacts{EverSeen: true, EverReady: true}
	young := poller.RowFacts{EverSeen: true}
	going := poller.RowFacts{EverSeen: true, EverReady: true, DeletionWanted: true, DeletionSent: true}
	confirmed := going
	confirmed.Confirmed = true
	cases := map[string]struct {
		reason string
		o      *shoot.Observed
		k      poller.RowFacts
		want   poller.DerivedStatus
	}{
		"Gone": {
			reason: "the deletion was taken, and the absence is confirmed",
			k:      confirmed,
			want:   poller.DerivedStatus{Status: v1.ShootDeleted, Reason: poller.ReasonGone, Message: "Gardener has deleted the cluster."},
		},
		"Unconfirmed": {
			reason: "a cached list may be older than the Shoot",
			k:      going,
			want:   poller.DerivedStatus{Status: v1.ShootDeleting, Reason: poller.ReasonUnconfirmed, Message: "The Shoot is no longer visible in Gardener; its deletion is being confirmed."},
		},
		"DeletedElsewhereFirst": {
			reason: "nobody told Gardener of the deletion yet: whoever does will find out",
			k:      poller.RowFacts{EverSeen: true, DeletionWanted: true, Confirmed: true},
			want:   poller.DerivedStatus{Status: v1.ShootDeleting, Reason: poller.ReasonUnconfirmed, Message: "The Shoot is no longer visible in Gardener; its deletion is being confirmed."},
		},
		"NotSeen": {
			reason: "asked for, not there yet: that is not deleted",
			k:      poller.RowFacts{Confirmed: true},
			want:   poller.DerivedStatus{Status: v1.ShootPending, Reason: poller.ReasonNotSeen, Message: "The Shoot is not visible in Gardener yet."},
		},
		"NeverSeenAndUnwanted": {
			reason: "the deletion has yet to be sent",
			k:      poller.RowFacts{DeletionWanted: true},
			want:   poller.DerivedStatus{Status: v1.ShootPending, Reason: poller.ReasonNotSeen, Message: "The Shoot is not visible in Gardener yet."},
		},
		"Missing": {
			reason: "nobody deleted it here, so it has to come back",
			k:      poller.RowFacts{EverSeen: true, Confirmed: true},
			want:   poller.DerivedStatus{Status: v1.ShootError, Reason: poller.ReasonMissing, Missing: true, Message: "The Shoot disappeared from Gardener without a delete request. It is being created again."},
		},
		"DeletionFailed": {
			reason: "Gardener goes on only if somebody acts",
			o:      with(with(newShoot("Delete Failed"), isDeleting), quotaExceeded), k: going,
			want: poller.DerivedStatus{
				Status: v1.ShootError, Reason: poller.ReasonDeletionFailed,
				Message: "Gardener failed to delete the cluster (43 %) and stopped retrying: quota of vCPUs exceeded [ERR_INFRA_QUOTA_EXCEEDED]; no subnet.",
			},
		},
		"DeletionFailedForceable": {
			reason: "with this code Gardener lets it be forced",
			o: with(with(newShoot("Delete Failed"), isDeleting), func(o *shoot.Observed) {
				o.LastErrors = []shoot.LastError{{Description: "a", Codes: []string{"ERR_RETRYABLE_INFRA_DEPENDENCIES"}}, {Description: "b.", Codes: []string{"ERR_X", "ERR_INFRA_DEPENDENCIES"}}}
			}), k: going,
			want: poller.DerivedStatus{
				Status: v1.ShootError, Reason: poller.ReasonDeletionFailed, ForceDeletable: true,
				Message: "Gardener failed to delete the cluster (43 %) and stopped retrying: a [ERR_RETRYABLE_INFRA_DEPENDENCIES]; b. [ERR_X, ERR_INFRA_DEPENDENCIES].",
			},
		},
		"Deleting": {
			reason: "with its progress", o: with(newShoot("Delete Processing"), isDeleting), k: going,
			want: poller.DerivedStatus{Status: v1.ShootDeleting, Reason: poller.ReasonDeleting, Message: "Gardener is deleting the cluster (43 %): Waiting for the infrastructure."},
		},
		"DeletingWithError": {
			reason: "an error that is tried again is part of it", o: with(with(newShoot("Delete Error"), isDeleting), quotaExceeded), k: going,
			want: poller.DerivedStatus{Status: v1.ShootDeleting, Reason: poller.ReasonDeleting, Message: "Gardener is deleting the cluster (43 %): Waiting for the infrastructure. Last error: quota of vCPUs exceeded [ERR_INFRA_QUOTA_EXCEEDED]; no subnet."},
		},
		"DeletingNotBegun": {
			reason: "the last operation was another, and says nothing of the deletion", o: with(newShoot("Create Failed"), isDeleting), k: going,
			want: poller.DerivedStatus{Status: v1.ShootDeleting, Reason: poller.ReasonDeleting, Message: "Gardener has not started to delete the cluster yet."},
		},
		"DeletingNothingBegun": {
			reason: "deleted before Gardener did anything", o: with(newShoot(""), isDeleting), k: going,
			want: poller.DerivedStatus{Status: v1.ShootDeleting, Reason: poller.ReasonDeleting, Message: "Gardener has not started to delete the cluster yet."},
		},
		"DeletedInGardener": {
			reason: "the cluster's owner did not ask for it", o: with(newShoot("Delete Processing"), isDeleting), k: ever,
			want: poller.DerivedStatus{Status: v1.ShootDeleting, Reason: poller.ReasonDeleting, Message: "The Shoot was deleted directly in Gardener. Gardener is deleting the cluster (43 %): Waiting for the infrastructure."},
		},
		"Unscheduled": {
			reason: "Gardener has not begun", o: newShoot(""), k: young,
			want: poller.DerivedStatus{Status: v1.ShootProgressing, Reason: poller.ReasonUnscheduled, Message: "Gardener has not scheduled the control plane yet (0 %)."},
		},
		"StaleSuccess": {
			reason: "it succeeded at what the Shoot was before", o: with(newShoot("Reconcile Succeeded"), func(o *shoot.Observed) { o.Generation = 4 }), k: ever,
			want: poller.DerivedStatus{Status: v1.ShootProgressing, Reason: poller.ReasonOutdated, Message: "Gardener has not picked up the last change yet."},
		},
		"StaleFailure": {
			reason: "it failed at what the Shoot was before", o: with(newShoot("Reconcile Failed"), func(o *shoot.Observed) { o.Generation = 4 }), k: ever,
			want: poller.DerivedStatus{Status: v1.ShootProgressing, Reason: poller.ReasonOutdated, Message: "Gardener has not picked up the last change yet."},
		},
		"Creating": {
			reason: "type, progress and description", o: newShoot("Create Processing"), k: young,
			want: poller.DerivedStatus{Status: v1.ShootProgressing, Reason: poller.ReasonOperating, Message: "Gardener is creating the cluster (43 %): Waiting for the infrastructure."},
		},
		"Pending": {
			reason: "it is about to begin", o: with(newShoot("Reconcile Pending"), func(o *shoot.Observed) { o.LastOperation.Description = "" }), k: ever,
			want: poller.DerivedStatus{Status: v1.ShootProgressing, Reason: poller.ReasonOperating, Message: "Gardener is reconciling the cluster (43 %)."},
		},
		"Error": {
			reason: "Gardener goes on trying for hours", o: with(newShoot("Create Error"), quotaExceeded), k: young,
			want: poller.DerivedStatus{Status: v1.ShootError, Reason: poller.ReasonRetrying, Retrying: true, Message: "Gardener failed to create the cluster (43 %) and retries: quota of vCPUs exceeded [ERR_INFRA_QUOTA_EXCEEDED]; no subnet."},
		},
		"ErrorWithoutErrors": {
			reason: "then the operation says what it knows", o: newShoot("Restore Error"), k: ever,
			want: poller.DerivedStatus{Status: v1.ShootError, Reason: poller.ReasonRetrying, Retrying: true, Message: "Gardener failed to restore the cluster's control plane (43 %) and retries: Waiting for the infrastructure."},
		},
		"Failed": {
			reason: "what helps is part of the message", o: with(newShoot("Reconcile Failed"), quotaExceeded), k: ever,
			want: poller.DerivedStatus{Status: v1.ShootError, Reason: poller.ReasonFailed, Message: "Gardener failed to reconcile the cluster (43 %) and stopped retrying: quota of vCPUs exceeded [ERR_INFRA_QUOTA_EXCEEDED]; no subnet. Change the cluster to trigger a retry."},
		},
		"Aborted": {
			reason: "that is as final as a failure", o: newShoot("Reconcile Aborted"), k: ever,
			want: poller.DerivedStatus{Status: v1.ShootError, Reason: poller.ReasonFailed, Message: "Gardener failed to reconcile the cluster (43 %) and stopped retrying: Waiting for the infrastructure. Change the cluster to trigger a retry."},
		},
		"Migrated": {
			reason: "a Restore follows", o: newShoot("Migrate Succeeded", "APIServerAvailable True"), k: ever,
			want: poller.DerivedStatus{Status: v1.ShootProgressing, Reason: poller.ReasonMigrated, Message: "Gardener is migrating the control plane; it is not restored on the new seed yet."},
		},
		"Hibernated": {
			reason: "its conditions are of the time when it was awake", o: with(newShoot("Reconcile Succeeded", "EveryNodeReady False"), func(o *shoot.Observed) { o.Hibernated = true }), k: ever,
			want: poller.DerivedStatus{Status: v1.ShootReady, Reason: poller.ReasonHibernated, Message: "The cluster is hibernated."},
		},
		"UnhealthyYoung": {
			reason: "what was never ready is on its way there", o: newShoot("Create Succeeded", "APIServerAvailable True", "EveryNodeReady False"), k: young,
			want: poller.DerivedStatus{Status: v1.ShootProgressing, Reason: poller.ReasonUnhealthy, Message: "The cluster is created but not healthy yet: EveryNodeReady (it is False)."},
		},
		"Unhealthy": {
			reason: "what was ready is broken; the conditions that are False are named", o: newShoot("Reconcile Succeeded", "ControlPlaneHealthy Progressing", "APIServerAvailable False", "EveryNodeReady False"), k: ever,
			want: poller.DerivedStatus{Status: v1.ShootError, Reason: poller.ReasonUnhealthy, Message: "The cluster is not healthy: APIServerAvailable (it is False), EveryNodeReady (it is False)."},
		},
		"UnsettledYoung": {
			reason: "it is not known to be ready", o: newShoot("Create Succeeded", "APIServerAvailable True", "EveryNodeReady Unknown"), k: young,
			want: poller.DerivedStatus{Status: v1.ShootProgressing, Reason: poller.ReasonUnsettled, Message: "The cluster is created; its health is not known yet: EveryNodeReady (it is Unknown)."},
		},
		"Degraded": {
			reason: "Gardener itself waits before it calls a condition False", o: newShoot("Reconcile Succeeded", "EveryNodeReady Progressing"), k: ever,
			want: poller.DerivedStatus{Status: v1.ShootReady, Reason: poller.ReasonUnsettled, Degraded: true, Message: "The health of the cluster is not known: EveryNodeReady (it is Progressing)."},
		},
		"Ready": {
			reason: "all conditions that there are", o: newShoot("Create Succeeded", "APIServerAvailable True", "EveryNodeReady True"), k: young,
			want: poller.DerivedStatus{Status: v1.ShootReady, Reason: poller.ReasonHealthy},
		},
		"ReadyWithoutConditions": {
			reason: "conditions that are absent are not judged", o: newShoot("Create Succeeded"), k: young,
			want: poller.DerivedStatus{Status: v1.ShootReady, Reason: poller.ReasonHealthy},
		},
		"ReadyAndUnwanted": {
			reason: "Gardener has yet to begin with the deletion, and until then it is what it is", o: newShoot("Create Succeeded"), k: going,
			want: poller.DerivedStatus{Status: v1.ShootReady, Reason: poller.ReasonHealthy},
		},
		"Strange": {
			reason: "a state of a newer Gardener is not ready", o: newShoot("Reshape Resting"), k: ever,
			want: poller.DerivedStatus{Status: v1.ShootProgressing, Reason: poller.ReasonStrange, Message: `Gardener reports an unknown state, "Resting": Gardener is running an operation ("Reshape") (43 %): Waiting for the infrastructure.`},
		},
	}
	var reasons []poller.StatusReason
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := poller.DeriveStatus(c.o, c.k)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
			reasons = append(reasons, got.Reason)
		})
	}
	for _, r := range poller.ListStatusReasons() {
		if !slices.Contains(reasons, r) {
			t.Errorf("no case has the reason %s", r)
		}
	}
}

// TestLongStatusMessage: a message can be stored, and its end is not lost behind Gardener's
// quotations.
func TestLongStatusMessage(t *testing.T) {
	o := newShoot("Create Failed")
	for _, said := range []string{"a\xffb\x00", strings.Repeat("ü", 999), "x" + strings.Repeat("ü", 999), strings.Repeat("ü\x00 \xff", 999)} {
		o.LastErrors, o.LastOperation.Description = nil, said
		if got := poller.DeriveStatus(o, poller.RowFacts{EverSeen: true}).Message; !strings.HasSuffix(got, "Change the cluster to trigger a retry.") {
			t.Errorf("a long description pushes out what helps: %q", got)
		}
		sick := newShoot("Create Succeeded")
		for range 20 {
			o.LastErrors = append(o.LastErrors, shoot.LastError{Description: said, Codes: []string{"E"}})
			sick.Conditions = append(sick.Conditions, shoot.Condition{Type: "C", Status: "False", Message: said})
			for _, o := range []*shoot.Observed{o, sick} {
				got := poller.DeriveStatus(o, poller.RowFacts{EverSeen: true}).Message
				if len(got) > 2000 || !utf8.ValidString(got) || strings.Contains(got, "\x00") {
					t.Fatalf("the database would not take %d bytes: %q", len(got), got)
				}
			}
		}
		if got := poller.DeriveStatus(o, poller.RowFacts{EverSeen: true}).Message; !strings.HasSuffix(got, "Change the cluster to trigger a retry.") {
			t.Errorf("long errors push out what helps: %q", got)
		}
	}
}

func anyObserved() *rapid.Generator[*shoot.Observed] {
	word := func(words ...string) *rapid.Generator[string] {
		return rapid.OneOf(rapid.SampledFrom(words), rapid.String())
	}
	return rapid.Custom(func(t *rapid.T) *shoot.Observed {
		o := &shoot.Observed{
			Generation: rapid.Int64Range(0, 3).Draw(t, "generation"), ObservedGeneration: rapid.Int64Range(0, 3).Draw(t, "observed"),
			Deleting: rapid.Bool().Draw(t, "deleting"), Hibernated: rapid.Bool().Draw(t, "hibernated"),
		}
		if rapid.Bool().Draw(t, "operation") {
			o.LastOperation = &shoot.Operation{
				Type:  word("Create", "Reconcile", "Delete", "Migrate", "Restore").Draw(t, "type"),
				State: word("Pending", "Processing", "Succeeded", "Error", "Failed", "Aborted").Draw(t, "state"), Description: rapid.String().Draw(t, "description"),
			}
		}
		for range rapid.IntRange(0, 3).Draw(t, "conditions") {
			o.Conditions = append(o.Conditions, shoot.Condition{Type: rapid.String().Draw(t, "condition"), Status: word("True", "False", "Unknown", "Progressing").Draw(t, "status")})
		}
		return o
	})
}

func anyRowFacts() *rapid.Generator[poller.RowFacts] {
	return rapid.Custom(func(t *rapid.T) poller.RowFacts {
		b := func(name string) bool { return rapid.Bool().Draw(t, name) }
		return poller.RowFacts{DeletionWanted: b("wanted"), DeletionSent: b("sent"), EverSeen: b("seen"), EverReady: b("ready"), Confirmed: b("confirmed")}
	})
}

// TestStatusProperties: there is always a status. A Shoot that has not picked up its last
// change is never ready, and a Shoot that may exist is never deleted.
func TestStatusProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var o *shoot.Observed
		if rapid.Bool().Draw(t, "there") {
			o = anyObserved().Draw(t, "shoot")
		}
		k := anyRowFacts().Draw(t, "known")
		v := poller.DeriveStatus(o, k)
		if !slices.Contains(poller.ListShootStatuses()[1:], v.Status) || !slices.Contains(poller.ListStatusReasons(), v.Reason) {
			t.Fatalf("no status or reason: %+v", v)
		}
		if again := poller.DeriveStatus(o, k); again != v {
			t.Fatalf("%+v, and then %+v", v, again)
		}
		if v.Status == v1.ShootReady && (o == nil || o.Deleting || o.Generation > o.ObservedGeneration || o.LastOperation == nil || o.LastOperation.State != "Succeeded") {
			t.Fatalf("ready: %+v", v)
		}
		if v.Status == v1.ShootDeleted && (o != nil || !k.Confirmed || !k.DeletionWanted || !k.DeletionSent) {
			t.Fatalf("deleted: %+v", v)
		}
		if v.Status == v1.ShootPending && (o != nil || k.EverSeen) {
			t.Fatalf("pending: %+v", v)
		}
		if v.Missing != (v.Reason == poller.ReasonMissing) || v.Missing && k.DeletionWanted {
			t.Fatalf("missing: %+v", v)
		}
		if !utf8.ValidString(v.Message) || strings.Contains(v.Message, "\x00") {
			t.Fatalf("the database would not take %q", v.Message)
		}
		if (v.Status == v1.ShootError) && v.Message == "" {
			t.Fatalf("an error that says nothing: %+v", v)
		}
	})
}

// TestNextStatuses compares all possible pairs of successive states of a Shoot and its row: the
// table has all changes of the status, and no others.
func TestNextStatuses(t *testing.T) {
	looks := []*shoot.Observed{
		nil, newShoot(""), newShoot("Create Succeeded"), newShoot("Create Failed"), with(newShoot("Delete Processing"), isDeleting),
		with(newShoot("Delete Failed"), isDeleting), newShoot("Create Succeeded", "EveryNodeReady Unknown"), newShoot("Create Succeeded", "EveryNodeReady False"),
	}
	var knows []poller.RowFacts
	for i := range 32 {
		k := poller.RowFacts{DeletionWanted: i&1 > 0, DeletionSent: i&2 > 0, EverSeen: i&4 > 0, EverReady: i&8 > 0, Confirmed: i&16 > 0}
		if (!k.DeletionSent || k.DeletionWanted) && (!k.EverReady || k.EverSeen) {
			knows = append(knows, k)
		}
	}
	// later reports whether b can be known after a Shoot was observed as o with a
	// known.
	later := func(o *shoot.Observed, a, b poller.RowFacts) bool {
		grows := func(x, y bool) bool { return y || !x }
		return grows(a.DeletionWanted, b.DeletionWanted) && grows(a.DeletionSent, b.DeletionSent) &&
			grows(a.EverSeen || o != nil, b.EverSeen) && grows(a.EverReady, b.EverReady)
	}
	found := map[string]bool{}
	note := func(from, to v1.ShootStatus) {
		if from == "" {
			from = "[*]"
		}
		if from != to {
			found[string(from)+" --> "+string(to)] = true
		}
	}
	for _, o := range looks {
		for _, a := range knows {
			was := poller.DeriveStatus(o, a).Status
			if o == nil || a.EverSeen { // an observed Shoot counts as seen
				note(poller.StatusNone, was)
			}
			if was == v1.ShootDeleted {
				continue // no further observation
			}
			for _, o2 := range looks {
				for _, b := range knows {
					if later(o, a, b) {
						note(was, poller.DeriveStatus(o2, b).Status)
					}
				}
			}
		}
	}
	var got []string
	for arrow := range found {
		got = append(got, arrow)
	}
	slices.Sort(got)
	if diff := cmp.Diff(formatTransitions(poller.ListShootStatuses(), poller.ListNextStatuses), got); diff != "" {
		t.Errorf("(-table +looks):\n%s", diff)
	}
	for _, from := range poller.ListShootStatuses() {
		for _, to := range poller.ListShootStatuses() {
			if want := from == to || slices.Contains(poller.ListNextStatuses(from), to); poller.IsAllowedStatusChange(from, to) != want {
				t.Errorf("%q after %q: %t", to, from, !want)
			}
		}
	}
}
