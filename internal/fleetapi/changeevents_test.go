package fleetapi_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
)

// done is a change event as its senders write it.
func done(action, node string, at time.Time) changeevent.Payload {
	return changeevent.NewPayload(changeevent.ChangeEvent{
		Action: action, NodeName: node, CheckName: "GpuXidError", ErrorCode: "XID-79", Agent: "gpu-health-monitor",
		Source: changeevent.SourceFaultQuarantine, Timestamp: at,
	})
}

// tell sends what is to be kept.
func (f *fixture) tell(cluster string, content any) v1.ChangesTaken {
	f.Helper()
	return read[v1.ChangesTaken](f.do("POST", v1.ChangesPath+"/"+cluster, content).want(http.StatusAccepted))
}

// changes lists change events.
func (f *fixture) changes(query string) v1.ChangeEventList {
	f.Helper()
	return read[v1.ChangeEventList](f.do("GET", v1.ChangesPath+query, nil).want(http.StatusOK))
}

// whatWasDone are the actions of change events and what they were done to.
func whatWasDone(l v1.ChangeEventList) []string {
	list := []string{}
	for i := range l.Items {
		e := &l.Items[i]
		list = append(list, strings.TrimSpace(e.Action+" "+e.Cluster+" "+e.Node+e.Subject))
	}
	return list
}

func stored(n int) v1.ChangesTaken { return v1.ChangesTaken{Stored: n, Different: []string{}} }

func known(n int) v1.ChangesTaken { return v1.ChangesTaken{Known: n, Different: []string{}} }

func TestChangeEvents(t *testing.T) {
	f := newFixture(t)
	now := time.Now().Truncate(time.Millisecond)
	cordon := done("cordon", "node-1", now.Add(-time.Minute))
	wantEqual(t, "the first time", stored(1), f.tell("eu-1", cordon))
	wantEqual(t, "the second time", known(1), f.tell("eu-1", cordon))
	wantEqual(t, "of another cluster", stored(1), f.tell("eu-2", cordon))
	wantEqual(t, "several", v1.ChangesTaken{Stored: 2, Known: 2, Different: []string{}},
		f.tell("eu-1", []changeevent.Payload{cordon, done("uncordon", "node-1", now), done("uncordon", "node-1", now), done("drain-started", "node-2", now.Add(-2*time.Minute))}))

	other := cordon
	other.Reason = "it was told otherwise before"
	wantEqual(t, "another content", v1.ChangesTaken{Known: 1, Different: []string{cordon.ID}}, f.tell("eu-1", other))

	l := f.changes("")
	wantEqual(t, "from the newest", []string{"uncordon eu-1 node-1", "cordon eu-2 node-1", "cordon eu-1 node-1", "drain-started eu-1 node-2"}, whatWasDone(l))
	e := l.Items[2]
	if e.RecordedAt.Before(now.Add(-time.Hour)) {
		t.Errorf("recorded at %s", e.RecordedAt)
	}
	e.RecordedAt = time.Time{}
	wantEqual(t, "an event", v1.ChangeEvent{
		Actor: "nvsentinel/fault-quarantine", RecordedBy: "anonymous", Tenant: "default",
		Action: "cordon", Timestamp: now.Add(-time.Minute).UTC(), Source: "nvsentinel/fault-quarantine", Cluster: "eu-1", Node: "node-1",
		HealthEvent: &v1.ChangeHealthEvent{CheckName: "GpuXidError", ErrorCode: "XID-79", Agent: "gpu-health-monitor"},
		ID:          cordon.ID, Summary: "NVSentinel cordoned node node-1 due to XID-79", Outcome: "succeeded",
	}, e)
}

// TestOwnChanges: what is done to clusters and node pools is told in the same
// transaction.
func TestOwnChanges(t *testing.T) {
	o := options{cfg: defaults()}
	o.cfg.RequiredAdapters = fleetapi.RequiredAdapters{}
	f := newFixtureWith(t, o)
	c := f.create("clusters", "c-one", nil)
	np := f.create("clusters/"+c.ID+"/nodepools", "np-one", nil)
	f.create("workloads", "w-one", nil)
	f.do("PATCH", "clusters/"+c.ID, `{"spec":{"a":1}}`).want(200)
	f.do("PATCH", "clusters/"+c.ID, `{"spec":{"a":1}}`).want(200) // the same
	f.do("PATCH", "nodepools/"+np.ID, `{"labels":{"a":"1"}}`).want(200)
	f.do("POST", "clusters", `{"name":"c-one","spec":{}}`).want(409)
	f.report("clusters/"+c.ID, "dns", 2)
	f.do("DELETE", "clusters/"+c.ID, nil).want(202)

	l := f.changes("")
	wantEqual(t, "changes", []string{
		"cluster-deleted c-one clusters/c-one", "nodepool-deleted c-one nodepools/np-one",
		"nodepool-changed c-one nodepools/np-one", "cluster-changed c-one clusters/c-one",
		"nodepool-created c-one nodepools/np-one", "cluster-created c-one clusters/c-one",
	}, whatWasDone(l))
	for _, e := range l.Items {
		if e.Actor != "anonymous" || e.Source != changeevent.SourceFleetAPI || e.Tenant != "default" || e.RecordedBy != "" {
			t.Errorf("got %+v", e)
		}
	}
	wantEqual(t, "reason", "its spec was changed", l.Items[3].Reason)
}
