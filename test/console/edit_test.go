package console

import (
	"encoding/json"
	"maps"
	"testing"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// testEdit changes labels in the page. It shows the difference first, and never overwrites a change
// that it has not shown.
func testEdit(r run) {
	t, s, b := r.T, r.system, r.browser
	cluster := s.createCluster(t, v1.CreateRequest{Name: "edited", Labels: map[string]string{"team": "red"}, Spec: json.RawMessage(`{"version":"1.34"}`)})
	p := b.newPageOf(t, s, "bob")
	p.open("clusters/" + cluster.ID)
	p.click("button", "Edit")
	p.fill("Labels", "team=blue\ntier=gold")
	p.click("button", "Show the difference")
	p.sees("team: red", "team: blue", "tier: gold", "fleetloop patch cluster edited --label team=blue --label tier=gold")

	green := map[string]string{"team": "green"}
	if _, err := s.fleet.Clusters().Patch(t.Context(), cluster.ID, v1.PatchRequest{Labels: &green}); err != nil {
		t.Fatal(err)
	}
	p.expectErrors("412 (Precondition Failed)")
	p.click("button", "Send the change")
	p.sees("It was changed meanwhile, so nothing was sent")
	s.wantLabels(t, cluster.ID, green)
	p.click("button", "Compare again")
	p.sees("team: green", "team: blue")
	// The report of an adapter is a new version, but no change of what is edited.
	report := v1.Report{Adapter: "edit", ObservedGeneration: 1, Conditions: []v1.ReportCondition{
		{Type: "Available", Status: v1.ConditionTrue}, {Type: "Applied", Status: v1.ConditionTrue}, {Type: "Health", Status: v1.ConditionTrue},
	}}
	if stored, err := s.fleet.Clusters().Report(t.Context(), cluster.ID, report); err != nil || !stored {
		t.Fatalf("the report was not stored: %v", err)
	}
	p.click("button", "Send the change")
	p.sees("Saved edited")
	s.wantLabels(t, cluster.ID, map[string]string{"team": "blue", "tier": "gold"})
	p.sees("team=blue", "tier=gold")
}

func (s *system) wantLabels(t *testing.T, id string, want map[string]string) {
	t.Helper()
	r, err := s.fleet.Clusters().Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(r.Labels, want) {
		t.Errorf("the cluster has the labels %v, want %v", r.Labels, want)
	}
}

// testPause pauses the sync of a cluster for an hour, and resumes it.
func testPause(r run) {
	t, s, b := r.T, r.system, r.browser
	cluster := s.createCluster(t, v1.CreateRequest{Name: "paused", Spec: json.RawMessage(`{}`)})
	p := b.newPageOf(t, s, "bob")
	p.open("clusters/" + cluster.ID)
	p.click("button", "Pause")
	p.sees("Gardener keeps what it has")
	if p.offers("Pause") {
		t.Error("a pause is offered without a reason")
	}
	p.fill("Reason", "the network is being rebuilt")
	p.choose("Ends automatically", "after 1 hour")
	p.sees("fleetloop clusters pause paused '--reason=the network is being rebuilt' --for=1h")
	p.click("button", "Pause")
	p.sees("Paused 1 cluster")
	p.sees("the network is being rebuilt", "ends in 59")
	sync, err := s.fleet.Syncs().Get(t.Context(), cluster.ID)
	if err != nil {
		t.Fatal(err)
	}
	if sync.Pause == nil || sync.Pause.Reason != "the network is being rebuilt" || sync.Pause.Until == nil || time.Until(*sync.Pause.Until) > time.Hour {
		t.Errorf("the pause is %+v", sync.Pause)
	}

	p.click("button", "Resume")
	p.click("button", "Resume")
	p.sees("Resumed 1 cluster")
	p.seesNot("the network is being rebuilt · ends")
	if sync, err = s.fleet.Syncs().Get(t.Context(), cluster.ID); err != nil || sync.Pause != nil {
		t.Errorf("the pause is %+v after the end of it, %v", sync.Pause, err)
	}
}
