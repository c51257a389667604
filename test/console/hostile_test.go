package console

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/changeevent"
)

// attack runs a script if it is taken for HTML. Its end names the field.
const attack = `<script>window.hit=1</script><img src=x onerror=window.hit=1><svg onload=window.hit=1>`

// shortAttack fits into fields of 64 characters.
const shortAttack = `<img src=x onerror=window.hit=1>short`

// plant returns an attack for each field.
func plant(fields ...string) (texts []string) {
	for _, field := range fields {
		texts = append(texts, attack+field)
	}
	return texts
}

// testHostileText plants HTML in every text that a person or a program can set, and looks at it in every
// view. It stays text.
func testHostileText(r run) {
	t, s, b := r.T, r.system, r.browser
	cluster := s.plantInFleet(t)
	execution := s.plantInHost(t)
	p := b.newPageOf(t, s, "admin")
	p.expectErrors("404 (Not Found) " + s.console + "api/hyperfleet/v1/clusters/%3C") // no cluster has this id
	for _, v := range []view{
		{path: "", sees: []string{"Latest changes"}},
		{path: "clusters/" + cluster.ID, sees: plant("pause", "condition", "code")},
		{path: "clusters/" + cluster.ID + "?tab=yaml", sees: plant("spec")},
		{path: "clusters/" + cluster.ID + "?tab=revisions", sees: plant("spec")},
		{path: "clusters/" + cluster.ID + "?tab=timeline", sees: plant("summary")},
		{path: "stuck?sync=paused&text=hostile", sees: plant("pause")},
		{path: "timeline?cluster=hostile&text=script", sees: plant("action", "summary")},
		{path: "timeline?by=actor&cluster=hostile", sees: plant("action", "summary")},
		{path: "executions", sees: plant("request")},
		{path: execution, sees: plant("request", "before", "after")},
		{path: "nodes?node=hostile", sees: append(plant("fault", "check", "entity"), shortAttack)},
		{path: "coverage", sees: []string{"Every resource is watched"}},
		{path: "clusters?text=" + url.QueryEscape(attack), sees: []string{"Nothing matches"}},
		{path: "clusters/" + url.PathEscape(attack), sees: []string{"Clusters"}},
		{path: "signin?failed=" + url.QueryEscape(attack), sees: []string{"Sign in to Fleetloop"}},
	} {
		p.open(v.path)
		p.sees(v.sees...)
		p.wantUnharmed()
	}

	p.open("timeline?cluster=hostile&text=script")
	p.click("button.event-line", p.lineOf("action"))
	p.sees(plant("source", "reason", "session", "text", "detail", "value", "actor", "health", "field")...)
	if links := evaluate[[]string](p, `[...document.querySelectorAll('.event-detail a')].map((a) => a.href)`); len(links) != 1 || links[0] != "https://example.com/" {
		t.Errorf("the event has the links %q, want the one to example.com", links)
	}
	p.wantUnharmed()
	testHostileReasons(run{t, s, b}, p, cluster, execution)
}

// testHostileReasons gives HTML as the reason of everything that a person can do in the page.
func testHostileReasons(r run, p *page, cluster v1.Resource, execution string) {
	t, s := r.T, r.system
	act := func(button, reason string) {
		t.Helper()
		p.click("button", button)
		p.fill("Reason", attack+reason)
		p.click("button", button)
		p.eventually(`return document.querySelector('dialog[open]') ? 'the dialog is open' : ''`)
		p.wantUnharmed()
	}
	p.open(execution)
	p.click("summary", "Show")
	p.sees(plant("annotation")...)
	act("Reject", "reject")
	p.sees(plant("reject")...)
	scaled := s.requestScale(t, "hostile-scaled", "")
	p.open(scaled)
	act("Approve", "approve")
	p.sees(plant("approve")...)
	p.expectMissingLog()

	p.open("executions")
	act("Emergency stop", "stop")
	p.sees(plant("stop")...)
	act("End the stop", "resume")
	p.seesNot(attack + "stop")

	p.open("nodes?node=hostile")
	act("Hold", "hold")
	act("Release", "release")

	p.open("clusters/" + cluster.ID)
	act("Resume", "unpause")
	p.click("button", "Edit")
	p.fill("Labels", "team="+attack)
	p.click("button", "Show the difference")
	p.sees(attack)
	p.expectErrors("400 (Bad Request)")
	p.click("button", "Send the change")
	p.sees("label")
	p.wantUnharmed()

	p.open("timeline?from=15m&text=script")
	for action, reason := range map[string]string{
		"execution-approve-requested": "approve", "emergency-stop-activated": "stop", "emergency-stop-ended": "resume",
		"node-hold-requested": "hold", "node-release-requested": "release", "sync-resumed": "unpause",
	} {
		p.click("button.event-line", p.lineOf(action))
		p.sees(plant(reason)...)
		p.wantUnharmed()
	}
}

// plantInFleet creates a cluster, a report and a change event.
func (s *system) plantInFleet(t *testing.T) v1.Resource {
	t.Helper()
	spec := encode(t, map[string]any{"note": attack + "spec", attack + "key": 1})
	cluster := s.createCluster(t, v1.CreateRequest{Name: "hostile", Labels: map[string]string{"team": "hostile"}, Spec: spec, Metadata: &v1.Metadata{DisplayName: attack + "display"}})
	if _, err := s.fleet.Syncs().Pause(t.Context(), cluster.ID, v1.SyncControl{Reason: attack + "pause"}); err != nil {
		t.Fatal(err)
	}
	report := v1.Report{Adapter: "hostile", ObservedGeneration: 1, Data: encode(t, map[string]string{attack + "data": attack}), Conditions: []v1.ReportCondition{
		{Type: "Available", Status: v1.ConditionFalse, Reason: attack + "code", Message: attack + "condition"},
		{Type: "Applied", Status: v1.ConditionTrue},
		{Type: "Health", Status: v1.ConditionTrue},
	}}
	if _, err := s.fleet.Clusters().Report(t.Context(), cluster.ID, report); err != nil {
		t.Fatal(err)
	}
	event := encode(t, changeevent.Payload{
		Action: attack + "action", Timestamp: metav1.Now().UTC().Format("2006-01-02T15:04:05.000Z07:00"), Source: attack + "source", Cluster: "hostile", Node: attack + "node",
		Subject: attack + "subject", Summary: attack + "summary", Reason: attack + "reason", Session: attack + "session", Outcome: changeevent.OutcomeSucceeded,
		Links:       []changeevent.Link{{Href: "javascript:window.hit=1", Text: attack + "link"}, {Href: "https://example.com/", Text: attack + "text"}},
		Details:     map[string]string{attack + "detail": attack + "value", changeevent.DetailActor: attack + "actor"},
		HealthEvent: &changeevent.HealthEvent{Message: attack + "health"},
		Changes:     []changeevent.FieldChange{{Field: attack + "field", Before: json.RawMessage(`"` + "x" + `"`), After: json.RawMessage(`"y"`)}},
	})
	post(t, strings.TrimSuffix(s.fleet.Endpoint(), "/api/hyperfleet/v1")+v1.ChangesPath+"/hostile", string(event))
	return cluster
}

// plantInHost requests an execution, reports a fault, and returns the path of the execution's page. All
// objects have annotations.
func (s *system) plantInHost(t *testing.T) (path string) {
	t.Helper()
	annotations := map[string]string{"example.com/note": attack + "annotation"}
	create(t, s.host, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "hostile", Annotations: annotations}, Data: map[string]string{"page": attack + "before"}})
	data := encode(t, map[string]string{"page": attack + "after"})
	path = s.requestAction(t, "hostile", "patch_configmap", "configmap=hostile", "namespace="+shop, "data="+string(data), "--reason="+attack+"request")
	execution := &v1alpha1.KubernetesExecution{ObjectMeta: metav1.ObjectMeta{Namespace: executions, Name: "hostile"}}
	patch := encode(t, map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err := s.host.Patch(t.Context(), execution, client.RawPatch(types.MergePatchType, patch)); err != nil {
		t.Fatal(err)
	}

	create(t, s.host, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "hostile", Annotations: annotations}})
	post(t, s.reports, string(encode(t, map[string]any{
		"agent": "monitor", "checkName": attack + "check", "nodeName": "hostile", "isFatal": true, "message": attack + "fault", "errorCode": []string{shortAttack},
		"entitiesImpacted": []any{map[string]string{"entityType": attack, "entityValue": attack + "entity"}},
	})))
	return path
}

func encode(t *testing.T, value any) []byte {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// wantUnharmed verifies that no planted text has become an element or has run.
func (p *page) wantUnharmed() {
	p.Helper()
	if evaluate[bool](p, `'hit' in window || document.querySelector('img, main script, svg[onload]') !== null`) {
		p.Errorf("planted text became a part of the page at %s", evaluate[string](p, `location.href`))
	}
}
