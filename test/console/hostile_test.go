package console

import (
	"encoding/json"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/changeevent"
)

// attack runs a script if it is taken for HTML. Its end names the field.
const attack = `<script>window.hit=1</script><img src=x onerror=window.hit=1><svg onload=window.hit=1>`

// testHostileText plants HTML in every text that a person or a program can set, and looks at it in every
// view. It stays text.
func testHostileText(r run) {
	t, s, b := r.T, r.system, r.browser
	spec, err := json.Marshal(map[string]any{"note": attack + "spec", attack + "key": 1})
	if err != nil {
		t.Fatal(err)
	}
	cluster := s.createCluster(t, v1.CreateRequest{Name: "hostile", Labels: map[string]string{"team": "hostile"}, Spec: spec})
	if _, err := s.fleet.SyncPause(t.Context(), cluster.ID, v1.SyncControl{Reason: attack + "pause"}); err != nil {
		t.Fatal(err)
	}
	report := v1.Report{Adapter: "hostile", ObservedGeneration: 1, Conditions: []v1.ReportCondition{
		{Type: "Available", Status: v1.ConditionFalse, Reason: "Hostile", Message: attack + "condition"},
		{Type: "Applied", Status: v1.ConditionTrue},
		{Type: "Health", Status: v1.ConditionTrue},
	}}
	if _, err := s.fleet.Report(t.Context(), v1.CollectionClusters, cluster.ID, report); err != nil {
		t.Fatal(err)
	}
	event, err := json.Marshal(changeevent.Payload{
		Action: attack + "action", Timestamp: metav1.Now().UTC().Format("2006-01-02T15:04:05.000Z07:00"), Source: attack + "source", Cluster: "hostile", Node: attack + "node",
		Subject: attack + "subject", Summary: attack + "summary", Reason: attack + "reason", Session: attack + "session", Outcome: changeevent.OutcomeSucceeded,
		Links:       []changeevent.Link{{Href: "javascript:window.hit=1", Text: attack + "link"}, {Href: "https://example.com/", Text: attack + "text"}},
		Details:     map[string]string{attack + "detail": attack + "value", changeevent.DetailActor: attack + "actor"},
		HealthEvent: &changeevent.HealthEvent{Message: attack + "health"},
		Changes:     []changeevent.FieldChange{{Field: attack + "field", Before: json.RawMessage(`"` + "x" + `"`), After: json.RawMessage(`"y"`)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	post(t, strings.TrimSuffix(s.fleet.Endpoint(), "/api/hyperfleet/v1")+v1.ChangesPath+"/hostile", string(event))
	create(t, s.host, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "hostile"}, Data: map[string]string{"page": attack + "before"}})
	data, err := json.Marshal(map[string]string{"page": attack + "after"})
	if err != nil {
		t.Fatal(err)
	}
	execution := s.requestAction(t, "hostile", "patch_configmap", "configmap=hostile", "namespace="+shop, "data="+string(data), "--reason="+attack+"request")

	create(t, s.host, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "hostile"}})
	fault, err := json.Marshal(map[string]any{"agent": "monitor", "checkName": "fan", "nodeName": "hostile", "isFatal": true, "message": attack + "fault"})
	if err != nil {
		t.Fatal(err)
	}
	post(t, s.reports, string(fault))

	p := b.newPageOf(t, s, "admin")
	all := func(names ...string) (texts []string) {
		for _, name := range names {
			texts = append(texts, attack+name)
		}
		return texts
	}
	for _, v := range []view{
		{path: "", sees: []string{"Latest changes"}},
		{path: "clusters/" + cluster.ID, sees: all("pause", "condition")},
		{path: "clusters/" + cluster.ID + "?tab=yaml", sees: all("spec")},
		{path: "clusters/" + cluster.ID + "?tab=revisions", sees: all("spec")},
		{path: "clusters/" + cluster.ID + "?tab=timeline", sees: all("summary")},
		{path: "stuck?sync=paused&text=hostile", sees: all("pause")},
		{path: "timeline?cluster=hostile&text=script", sees: all("action", "summary")},
		{path: "timeline?by=actor&cluster=hostile", sees: all("action", "summary")},
		{path: "executions", sees: all("request")},
		{path: execution, sees: all("request", "before", "after")},
		{path: "nodes?node=hostile", sees: all("fault")},
	} {
		p.open(v.path)
		p.sees(v.sees...)
		p.wantUnharmed()
	}

	p.open("timeline?cluster=hostile&text=script")
	p.click("button.event-line", p.lineOf("action"))
	p.sees(all("source", "reason", "session", "text", "detail", "value", "actor", "health", "field")...)
	if links := evaluate[[]string](p, `[...document.querySelectorAll('.event-detail a')].map((a) => a.href)`); len(links) != 1 || links[0] != "https://example.com/" {
		t.Errorf("the event has the links %q, want the one to example.com", links)
	}
	p.wantUnharmed()

	p.open(execution)
	p.click("button", "Reject")
	p.fill("Reason", attack+"reject")
	p.click("button", "Reject")
	p.sees(all("reject")...)
	p.wantUnharmed()
	p.open("clusters/" + cluster.ID)
	p.click("button", "Edit")
	p.fill("Labels", "team="+attack)
	p.click("button", "Show the difference")
	p.sees(attack)
	p.expectErrors("400 (Bad Request)")
	p.click("button", "Send the change")
	p.sees("label")
	p.wantUnharmed()
}

// wantUnharmed verifies that no planted text has become an element or has run.
func (p *page) wantUnharmed() {
	p.Helper()
	if evaluate[bool](p, `'hit' in window || document.querySelector('img, main script, svg[onload]') !== null`) {
		p.Errorf("planted text became a part of the page at %s", evaluate[string](p, `location.href`))
	}
}
