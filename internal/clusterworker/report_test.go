package clusterworker_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// synced returns a row that is up to date.
func synced(change ...func(*clusterworker.Row)) clusterworker.Row {
	r := clusterworker.Row{
		ClusterID: "c", Generation: 5, SyncedGeneration: 5, ClusterGeneration: 3, Synced: true,
		ShootName: "s", ShootUID: "u", Status: v1.ShootReady,
	}
	for _, f := range change {
		f(&r)
	}
	return r
}

func is(status v1.ShootStatus, message string) func(*clusterworker.Row) {
	return func(r *clusterworker.Row) { r.Status, r.StatusMessage = status, message }
}

// failing is a failed try that counts.
func failing(class shoot.Class, text string) func(*clusterworker.Row) {
	return func(r *clusterworker.Row) {
		r.Synced, r.SyncError, r.ErrorClass, r.Attempts = false, text, clusterworker.ErrorClass(class), 2
	}
}

func isEdited(r *clusterworker.Row) { r.Synced, r.Generation = false, r.Generation+1 }

func isUnwanted(r *clusterworker.Row) {
	r.Deleting, r.Synced, r.Generation = true, false, r.Generation+1
}

func isUnwantedAndSent(r *clusterworker.Row) {
	r.Deleting, r.DeletionSent, r.Generation, r.SyncedGeneration = true, true, 6, 6
}

// said returns a report in short form: + for True and - for False.
func said(r v1.Report) string {
	var words []string
	for _, c := range r.Conditions {
		sign := map[v1.ConditionStatus]string{v1.ConditionTrue: "+", v1.ConditionFalse: "-", v1.ConditionUnknown: "?"}[c.Status]
		words = append(words, sign+c.Type+"("+c.Reason+")")
	}
	return strings.Join(words, " ")
}

func TestReport(t *testing.T) {
	cases := map[string]struct {
		reason string
		row    clusterworker.Row
		want   string // empty means no report
	}{
		"Untried":     {"there is no generation to report on", clusterworker.Row{ClusterID: "c", Generation: 1}, ""},
		"Ready":       {"all is well", synced(), "+Available(ShootReady) +Applied(Synced) +Health(NoErrors)"},
		"Pending":     {"Gardener has it, and does not show it", synced(is(v1.ShootPending, "")), "-Available(ShootPending) +Applied(Synced) +Health(NoErrors)"},
		"Progressing": {"Gardener is at it", synced(is(v1.ShootProgressing, "12 %")), "-Available(ShootProgressing) +Applied(Synced) +Health(NoErrors)"},
		"Failed":      {"Gardener failed", synced(is(v1.ShootError, "no quota")), "-Available(ShootFailed) +Applied(Synced) -Health(ShootFailed)"},
		"DeletedByOthers": {
			"somebody deletes it in Gardener", synced(is(v1.ShootDeleting, "")),
			"-Available(ShootDeleting) +Applied(Synced) +Health(NoErrors)",
		},
		"NothingKnown": {"it was sent, and nothing came of it", synced(is("", "")), "-Available(ShootUnknown) +Applied(Synced) +Health(NoErrors)"},
		"Edited": {
			"the report is on the generation before, which is ready", synced(isEdited),
			"+Available(ShootReady) +Applied(Synced) +Health(NoErrors)",
		},
		"EditFailed": {
			"what it should be Gardener refused; that it runs as it was is not what was asked for", synced(isEdited, failing(shoot.ClassInvalid, "no such version")),
			"-Available(SyncFailed) -Applied(InvalidShoot) -Health(InvalidShoot)",
		},
		"EditWaits": {
			"Gardener is away, which is nobody's fault",
			synced(isEdited, failing(shoot.ClassUnavailable, "refused"), func(r *clusterworker.Row) { r.Attempts = 0 }),
			"-Available(SyncFailed) -Applied(Unavailable) +Health(NoErrors)",
		},
		"MendingFailed": {
			"it has drifted, and could not be sent again: it is ready nevertheless", synced(failing(shoot.ClassForbidden, "no right")),
			"+Available(ShootReady) +Applied(Synced) -Health(Forbidden)",
		},
		"FirstFailed": {
			"it was never sent", synced(failing("invalid_spec", "spec.region: is missing"), is("", ""), func(r *clusterworker.Row) { r.SyncedGeneration = 0 }),
			"-Available(SyncFailed) -Applied(InvalidSpec) -Health(InvalidSpec)",
		},
		"NoClass": {
			"an error is an error", synced(isEdited, failing("", "something")),
			"-Available(SyncFailed) -Applied(SyncFailed) -Health(SyncFailed)",
		},
		"Unwanted": {
			"its deletion was not sent yet", synced(isUnwanted),
			"-Available(ShootReady) +Applied(Synced) +Health(NoErrors) -Finalized(ShootExists)",
		},
		"Deleting": {
			"Gardener deletes it", synced(isUnwantedAndSent, is(v1.ShootDeleting, "40 %")),
			"-Available(ShootDeleting) +Applied(Synced) +Health(NoErrors) -Finalized(ShootExists)",
		},
		"DeletionWaits": {
			"somebody else has to confirm it", synced(isUnwanted, failing(shoot.ClassApproval, "confirm it")),
			"-Available(ShootReady) -Applied(WaitingForApproval) -Health(WaitingForApproval) -Finalized(ShootExists)",
		},
		"Deleted": {
			"it is gone", synced(isUnwantedAndSent, is(v1.ShootDeleted, "")),
			"-Available(ShootDeleted) -Applied(ShootDeleted) +Health(NoErrors) +Finalized(ShootDeleted)",
		},
		"DeletedButWanted": {
			"only what is to go can be done with", synced(is(v1.ShootDeleted, "")),
			"-Available(ShootDeleted) +Applied(Synced) +Health(NoErrors)",
		},
	}
	now := time.Now()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r, ok := clusterworker.BuildClusterReport(tc.row, now)
			if ok != (tc.want != "") {
				t.Fatalf("%s: there is a report: %t", tc.reason, ok)
			}
			if diff := cmp.Diff(tc.want, said(r)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestReportTells: a report has the time of the read and the content of the row.
func TestReportTells(t *testing.T) {
	now := time.Now()
	r, _ := clusterworker.BuildClusterReport(synced(is(v1.ShootError, "no quota")), now)
	if r.Adapter != "gardener" || r.ObservedGeneration != 3 || !r.ObservedTime.Equal(now) {
		t.Errorf("got %+v", r)
	}
	if r.Conditions[0].Message != "no quota" || r.Conditions[2].Message != "no quota" {
		t.Errorf("got %+v", r.Conditions)
	}
	if diff := cmp.Diff(`{"shoot_name":"s","shoot_uid":"u","shoot_status":"error"}`, string(r.Data)); diff != "" {
		t.Error(diff)
	}
}

// TestReportsAreAccepted: the fleet API accepts every report, also after an earlier
// one.
func TestReportsAreAccepted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Now()
		var last *v1.AdapterStatus
		for range 2 {
			now = now.Add(time.Second)
			r, ok := clusterworker.BuildClusterReport(anyRow(t), now)
			if !ok {
				continue
			}
			if problems := fleetapi.ValidateReport(r, now); len(problems) > 0 {
				t.Fatalf("refused: %v", problems)
			}
			status, verdict := fleetapi.DecideReport(r, last, 9, now)
			if behind := last != nil && r.ObservedGeneration < last.ObservedGeneration; verdict != fleetapi.ReportStored && !behind {
				t.Fatalf("not stored: %s", verdict)
			}
			last = &status
		}
	})
}

func anyRow(t *rapid.T) clusterworker.Row {
	return clusterworker.Row{
		Generation: 3, SyncedGeneration: rapid.Int64Range(0, 3).Draw(t, "synced generation"),
		ClusterGeneration: rapid.Int64Range(0, 9).Draw(t, "cluster generation"),
		Synced:            rapid.Bool().Draw(t, "synced"), Deleting: rapid.Bool().Draw(t, "deleting"),
		SyncError:  rapid.OneOf(rapid.Just(""), rapid.String(), rapid.Just(strings.Repeat("ü\x00", 40000))).Draw(t, "error"),
		ErrorClass: clusterworker.ErrorClass(rapid.SampledFrom([]string{"", "invalid", "invalid_spec", "__odd", "waiting_for_approval"}).Draw(t, "class")),
		Attempts:   rapid.IntRange(0, 2).Draw(t, "attempts"), ShootName: rapid.SampledFrom([]string{"", "s"}).Draw(t, "name"),
		Status: rapid.SampledFrom([]v1.ShootStatus{
			"", v1.ShootPending, v1.ShootProgressing, v1.ShootReady, v1.ShootError, v1.ShootDeleting, v1.ShootDeleted,
		}).Draw(t, "status"),
		StatusMessage: rapid.String().Draw(t, "message"),
	}
}

// TestReportPhases: the phase that owners see follows from the reports.
func TestReportPhases(t *testing.T) {
	cases := map[string]struct {
		reason    string
		row       clusterworker.Row
		want      v1.Phase
		finalized bool
	}{
		"Ready":       {"it is as it should be", synced(), v1.PhaseReady, false},
		"Progressing": {"it is being made", synced(is(v1.ShootProgressing, "")), v1.PhaseProvisioning, false},
		"Failed":      {"Gardener failed", synced(is(v1.ShootError, "")), v1.PhaseFailed, false},
		"Invalid":     {"no Shoot can be made of it", synced(isEdited, failing(shoot.ClassInvalid, "no")), v1.PhaseFailed, false},
		"Away": {
			"Gardener is away: nothing is held against the cluster",
			synced(isEdited, failing(shoot.ClassUnavailable, "no"), func(r *clusterworker.Row) { r.Attempts = 0 }), v1.PhaseProvisioning, false,
		},
		"Deleting": {"it goes", synced(isUnwantedAndSent, is(v1.ShootDeleting, "")), v1.PhaseDeleting, false},
		"Deleted":  {"it is gone: nothing keeps it any more", synced(isUnwantedAndSent, is(v1.ShootDeleted, "")), v1.PhaseDeleting, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			now := time.Now()
			r, _ := clusterworker.BuildClusterReport(tc.row, now)
			status, verdict := fleetapi.DecideReport(r, nil, 3, now)
			facts := fleetapi.StatusFacts{
				Generation: 3, Deleting: tc.row.Deleting, Required: []string{clusterworker.ReportAdapter},
				Reports: []v1.AdapterStatus{status}, Now: now,
			}
			if got := fleetapi.AggregateStatus(facts).Phase; verdict != fleetapi.ReportStored || got != tc.want {
				t.Errorf("%s: %s and %s, want %s", tc.reason, verdict, got, tc.want)
			}
			if got := fleetapi.IsDeletionComplete(facts); got != tc.finalized {
				t.Errorf("%s: finalized is %t", tc.reason, got)
			}
		})
	}
}
