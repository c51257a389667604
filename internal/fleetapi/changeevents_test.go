package fleetapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
)

// done returns a change event as senders write it.
func done(action, node string, at time.Time) changeevent.Payload {
	return changeevent.NewPayload(changeevent.ChangeEvent{
		Action: action, NodeName: node, CheckName: "GpuXidError", ErrorCode: "XID-79", Agent: "gpu-health-monitor",
		Source: changeevent.SourceFaultQuarantine, Timestamp: at,
	})
}

// tell sends change events and requires that they are stored.
func (f *fixture) tell(cluster string, content any) v1.ChangesAccepted {
	f.Helper()
	return read[v1.ChangesAccepted](f.do("POST", v1.ChangesPath+"/"+cluster, content).want(http.StatusAccepted))
}

// changes lists change events.
func (f *fixture) changes(query string) v1.ChangeEventList {
	f.Helper()
	return read[v1.ChangeEventList](f.do("GET", v1.ChangesPath+query, nil).want(http.StatusOK))
}

// whatWasDone returns the actions and nodes of change events.
func whatWasDone(l v1.ChangeEventList) []string {
	list := []string{}
	for i := range l.Items {
		e := &l.Items[i]
		list = append(list, strings.TrimSpace(e.Action+" "+e.Cluster+" "+e.Node+e.Subject))
	}
	return list
}

func stored() v1.ChangesAccepted { return v1.ChangesAccepted{Stored: 1, Conflicts: []string{}} }

func known() v1.ChangesAccepted { return v1.ChangesAccepted{Duplicates: 1, Conflicts: []string{}} }

func TestChangeEvents(t *testing.T) {
	f := newFixture(t)
	now := time.Now().Truncate(time.Millisecond)
	cordon := done("cordon", "node-1", now.Add(-time.Minute))
	wantEqual(t, "the first time", stored(), f.tell("eu-1", cordon))
	wantEqual(t, "the second time", known(), f.tell("eu-1", cordon))
	wantEqual(t, "of another cluster", stored(), f.tell("eu-2", cordon))
	wantEqual(t, "several", v1.ChangesAccepted{Stored: 2, Duplicates: 2, Conflicts: []string{}},
		f.tell("eu-1", []changeevent.Payload{cordon, done("uncordon", "node-1", now), done("uncordon", "node-1", now), done("drain-started", "node-2", now.Add(-2*time.Minute))}))

	other := cordon
	other.Reason = "it was told otherwise before"
	wantEqual(t, "another content", v1.ChangesAccepted{Duplicates: 1, Conflicts: []string{cordon.ID}}, f.tell("eu-1", other))

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

// TestOwnChanges checks that changes of clusters and node pools are recorded in the same
// transaction.
func TestOwnChanges(t *testing.T) {
	o := options{cfg: defaults()}
	o.cfg.RequiredAdapters = fleetapi.RequiredAdapters{}
	f := newFixtureWith(t, o)
	c := f.create("clusters", "c-one", nil)
	np := f.create("clusters/"+c.ID+"/nodepools", "np-one", nil)
	f.create("workloads", "w-one", nil)
	f.do("PATCH", "clusters/"+c.ID, `{"spec":{"a":1}}`).want(200)
	f.do("PATCH", "clusters/"+c.ID, `{"spec":{"a":1}}`).want(200) // unchanged
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

// TestChangedFields checks that an event has the changed fields, and all fields for creations and
// deletions. The event is found by a changed field.
func TestChangedFields(t *testing.T) {
	o := options{cfg: defaults()}
	o.cfg.RequiredAdapters = fleetapi.RequiredAdapters{}
	f := newFixtureWith(t, o)
	c := f.create("clusters", "c-one", nil)
	f.do("PATCH", "clusters/"+c.ID, `{"spec":{"version":"1.35","workers":[{"max":1}],"password":"x"}}`).want(200)
	f.do("PATCH", "clusters/"+c.ID, `{"spec":{"version":"1.35","workers":[{"max":2}],"password":"y"},"labels":{"a":"1"}}`).want(200)
	f.do("DELETE", "clusters/"+c.ID, nil).want(202)

	changed := func(field, before, after string) v1.ChangedField {
		c := v1.ChangedField{Field: field}
		if before != "" {
			c.Before = json.RawMessage(before)
		}
		if after != "" {
			c.After = json.RawMessage(after)
		}
		return c
	}
	items := f.changes("").Items
	wantEqual(t, "deleted", []v1.ChangedField{
		changed("spec.password", `"[redacted]"`, ""), changed("spec.version", `"1.35"`, ""), changed("spec.workers", `[{"max":2}]`, ""), changed("labels.a", `"1"`, ""),
	}, items[0].Changes)
	wantEqual(t, "changed", []v1.ChangedField{
		changed("spec.password", `"[redacted]"`, `"[redacted]"`), changed("spec.workers[0].max", "1", "2"), changed("labels.a", "", `"1"`),
	}, items[1].Changes)
	wantEqual(t, "summary", "anonymous changed spec.password (redacted), spec.workers[0].max 1 → 2, labels.a (unset) → 1 of c-one", items[1].Summary)
	wantEqual(t, "created by", "anonymous created cluster c-one", items[3].Summary)
	for query, want := range map[string]int{
		"?field=spec.workers.max": 1, "?field=spec.workers[7].max": 1, "?field=spec.workers": 2, "?field=spec.version": 1, "?field=spec": 2,
		"?field=labels.a&actor=anonymous": 1, "?field=labels.a&actor=alice": 0, "?field=none": 0, "?strict=true&field=spec": 2,
	} {
		wantEqual(t, query, want, len(f.changes(query).Items))
	}
	stream := f.streamChanges("?field=firmware", nil)
	f.tell("eu-1", done("cordon", "node-1", time.Now()))
	told := done("firmware-updated", "node-1", time.Now())
	told.Changes = []changeevent.FieldChange{{Field: "firmware.version", Before: json.RawMessage("1"), After: json.RawMessage("2")}}
	f.tell("eu-1", told)
	stream.wantChanges("firmware-updated node-1")
	wantEqual(t, "of others", 1, len(f.changes("?field=firmware.version").Items))
}

func TestPagesOfChangeEvents(t *testing.T) {
	f := newFixture(t)
	now := time.Now()
	var told []changeevent.Payload
	var want []string
	for i := range 25 {
		told = append(told, done("cordon", fmt.Sprintf("n-%02d", i), now.Add(-time.Duration(i/2)*time.Second)))
	}
	f.tell("eu-1", told)
	all := f.changes("?limit=1000&node=")
	want = whatWasDone(all)
	wantEqual(t, "all", 25, len(want))
	if all.Continue != "" {
		t.Error("there is another page")
	}
	var got []string
	cursor := ""
	for pages := 1; ; pages++ {
		page := f.changes("?since=1h&limit=7&continue=" + cursor)
		got = append(got, whatWasDone(page)...)
		if page.Continue == "" {
			wantEqual(t, "pages", 4, pages)
			break
		}
		cursor = page.Continue
		f.tell("eu-1", done("uncordon", fmt.Sprintf("n-%02d", pages), now.Add(time.Minute))) // new events move no page
	}
	wantEqual(t, "pages", want, got)

	p := f.do("GET", v1.ChangesPath+"?since=2h&continue="+cursor, nil).problem(400, "invalid_query", "repeat all other parameters")
	wantEqual(t, "the field", "continue", p.Errors[0].Field)
}

func TestRefusedChangeEvents(t *testing.T) {
	f := newFixture(t)
	now := time.Now()
	good := done("cordon", "n-1", now)
	old := done("cordon", "n-1", now.Add(-91*24*time.Hour))
	ahead := done("cordon", "n-1", now.Add(2*time.Hour))
	own := good
	own.Source = changeevent.SourceFleetAPI
	path := v1.ChangesPath + "/eu-1"
	for name, c := range map[string]struct {
		reason  string
		path    string
		content any
		status  int
		code    string
		says    string
	}{
		"Old":         {"it would be gone at once", path, old, 422, "timestamp_out_of_range", "older than the retention of change events, 2160h0m0s"},
		"OldOfMany":   {"it says which", path, []changeevent.Payload{good, old}, 422, "timestamp_out_of_range", "element 1:"},
		"Ahead":       {"it would stand before all others for long", path, ahead, 422, "timestamp_out_of_range", "synchronise the clocks"},
		"Own":         {"nobody speaks for the fleet API", path, own, 400, "invalid_body", "is reserved: the fleet API"},
		"NoAction":    {"it says nothing", path, `{"timestamp":"2026-03-01T12:00:00Z"}`, 400, "invalid_body", "action is required"},
		"NoTime":      {"it could not be told from another", path, `{"action":"cordon"}`, 400, "invalid_body", "timestamp"},
		"NoJSON":      {"", path, `cordon`, 400, "invalid_body", "not a change event"},
		"OneOfMany":   {"it says which", path, `[{"action":"cordon","timestamp":"2026-03-01T12:00:00Z"},{}]`, 400, "invalid_body", "element 1"},
		"LongName":    {"cut it would be another's", path, map[string]string{"action": "cordon", "timestamp": changeevent.CanonicalTime(now), "node": strings.Repeat("n", 254)}, 400, "invalid_body", "node is longer than"},
		"Cluster":     {"a name is one line", v1.ChangesPath + "/a%0Ab", good, 404, "not_found", "is not a cluster name"},
		"LongCluster": {"", v1.ChangesPath + "/" + strings.Repeat("c", 254), good, 404, "not_found", "1 to 253"},
		"TooMany":     {"a request has a bound", path, slices.Repeat([]changeevent.Payload{good}, 1001), 413, "body_too_large", "1000"},
		"Large":       {"", path, `["` + strings.Repeat("x", fleetapi.DefaultMaxBody) + `"]`, 413, "body_too_large", "fewer events"},
	} {
		t.Run(name, func(t *testing.T) {
			f.under(t).do("POST", c.path, c.content).problem(c.status, c.code, c.says)
		})
	}
	f.do("PUT", path, good).problem(405, "method_not_allowed", "POST")
	f.do("DELETE", v1.ChangesPath, nil).problem(405, "method_not_allowed", "GET")
	wantEqual(t, "nothing was kept", 0, len(f.changes("").Items))

	for query, says := range map[string]string{
		"limit=0": "1 to 1000", "limit=1001": "1 to 1000", "limit=x": "1 to 1000", "since=yesterday": "must be a time such as", "until=-5m": "must be a time such as",
		"continue=x": "not a token", "after=x": "only for streams", "strict=true&colour=red": "not a known parameter", "strict=so": "true or false",
		"node=a&node=b": "more than once", "node=" + strings.Repeat("n", 1025): "longer than", "node=%00": "invalid characters", "node=%ff": "invalid characters",
	} {
		f.do("GET", v1.ChangesPath+"?"+query, nil).problem(400, "invalid_query", says)
	}
	stream := http.Header{"Accept": {"text/event-stream"}}
	for query, says := range map[string]string{
		"since=1h": "not supported for streams", "continue=x": "not supported for streams", "after=x": "not a cursor", "strict=true&colour=red": "not a known parameter",
	} {
		f.doWith(stream, "GET", v1.ChangesPath+"?"+query, nil).problem(400, "invalid_query", says)
	}
	f.doWith(http.Header{"Accept": {"text/event-stream"}, "Last-Event-Id": {"x"}}, "GET", v1.ChangesPath, nil).problem(400, "invalid_query", "not a cursor of this API")
}

// TestCloudEvents checks that an event is the same in every accepted format.
func TestCloudEvents(t *testing.T) {
	f := newFixture(t)
	p := done("cordon", "n-1", time.Now())
	envelope := func(id string, data any) map[string]any {
		return map[string]any{"specversion": "1.0", "id": id, "source": "/clusters/eu-1/nvsentinel/fault-quarantine", "type": "com.nvidia.nvsentinel.node.cordon.v1", "data": data}
	}
	send := func(contentType string, header http.Header, content any) v1.ChangesAccepted {
		t.Helper()
		body, err := json.Marshal(content)
		if err != nil {
			t.Fatal(err)
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+v1.ChangesPath+"/eu-1", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(r.Header, header)
		r.Header.Set("Content-Type", contentType)
		return read[v1.ChangesAccepted](f.send(r, body).want(http.StatusAccepted))
	}
	wantEqual(t, "structured", stored(), send("application/cloudevents+json", nil, envelope("1", p)))
	wantEqual(t, "batch", v1.ChangesAccepted{Stored: 1, Duplicates: 1, Conflicts: []string{}},
		send("application/cloudevents-batch+json; charset=utf-8", nil, []any{envelope("1", p), envelope("2", done("uncordon", "n-1", time.Now()))}))
	binary := http.Header{
		"Ce-Specversion": {"1.0"}, "Ce-Id": {"3"}, "Ce-Source": {"/clusters/eu-1/nvsentinel/janitor"}, "Ce-Type": {"com.nvidia.nvsentinel.node.reboot-executed.v1"},
		"Ce-Time": {changeevent.CanonicalTime(time.Now().Add(time.Second))}, "Ce-Subject": {"n-1"},
	}
	wantEqual(t, "binary", stored(), send("application/json", binary, map[string]any{"action": "reboot-executed"}))
	wantEqual(t, "what was told before", known(), f.tell("eu-1", p))
	wantEqual(t, "all", []string{"reboot-executed eu-1 n-1", "uncordon eu-1 n-1", "cordon eu-1 n-1"}, whatWasDone(f.changes("")))

	for contentType, content := range map[string]string{"application/cloudevents+json": `{"specversion":"0.3"}`, "application/cloudevents-batch+json": `{}`} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+v1.ChangesPath+"/eu-1", strings.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", contentType)
		f.send(r, []byte(content)).problem(400, "invalid_body", "")
	}
	for _, contentType := range []string{"text/plain", "", "application/cloudevents+avro", "application/x-www-form-urlencoded"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+v1.ChangesPath+"/eu-1", strings.NewReader(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", contentType)
		f.send(r, []byte(`{}`)).problem(415, "unsupported_media_type", "")
	}
}

// TestChangeEventsOfTenants checks that the sender's tenant owns an event, unless a component that
// serves all tenants names the owner.
func TestChangeEventsOfTenants(t *testing.T) {
	red, blue, system := newTenants(t)
	now := time.Now()
	event := func(node, tenant string) changeevent.Payload {
		e := changeevent.ChangeEvent{Action: "cordon", NodeName: node, Source: changeevent.SourceFaultQuarantine, Timestamp: now}
		if tenant != "" {
			e.Details = map[string]string{"tenant": tenant}
		}
		return changeevent.NewPayload(e)
	}
	red.tell("c-1", event("by-red", ""))
	blue.tell("c-1", event("by-blue", "red")) // not for blue to decide
	system.tell("c-1", event("by-system", ""))
	system.tell("c-1", event("for-red", "red"))
	red.as("red-robot").tell("c-1", event("by-robot", ""))
	blue.create("clusters", "c-blue", nil)

	nodes := func(f *fixture) []string {
		list := []string{}
		for _, e := range f.changes("?action=cordon,cluster-created").Items {
			list = append(list, e.Node+e.Subject)
		}
		slices.Sort(list)
		return list
	}
	wantEqual(t, "red sees", []string{"by-red", "by-robot", "for-red"}, nodes(red))
	wantEqual(t, "blue sees", []string{"by-blue", "clusters/c-blue"}, nodes(blue))
	wantEqual(t, "the system sees", []string{"by-blue", "by-red", "by-robot", "by-system", "clusters/c-blue", "for-red"}, nodes(system))

	// An event of one tenant does not keep another from sending the same.
	wantEqual(t, "the same id", stored(), blue.tell("c-1", event("by-red", "")))
	wantEqual(t, "the same id of the same tenant", known(), red.as("red-robot").tell("c-1", event("by-red", "")))
	// A tenant who guesses a future id cannot preempt the event.
	red.tell("c-1", event("foreseen", "red"))
	wantEqual(t, "what a component tells", stored(), system.tell("c-1", event("foreseen", "red")))
	red.as("").do("POST", v1.ChangesPath+"/c-1", event("x", "")).problem(401, "unauthenticated", "no bearer token")
	red.as("").do("GET", v1.ChangesPath, nil).problem(401, "unauthenticated", "no bearer token")

	page := red.changes("?limit=1")
	blue.do("GET", v1.ChangesPath+"?limit=1&continue="+page.Continue, nil).problem(400, "invalid_query", "another query")
}

func TestKnownClustersOnly(t *testing.T) {
	o := options{cfg: defaults()}
	o.cfg.Timeline.KnownClustersOnly = true
	f := newFixtureWith(t, o)
	p := done("cordon", "n-1", time.Now())
	f.do("POST", v1.ChangesPath+"/eu-1", p).problem(404, "not_found", `there is no cluster "eu-1"`)
	f.create("clusters", "eu-1", nil)
	wantEqual(t, "of one that is there", stored(), f.tell("eu-1", p))
	p.Cluster = "eu-2" // takes precedence over the path
	f.do("POST", v1.ChangesPath+"/eu-1", p).problem(404, "not_found", `there is no cluster "eu-2"`)
}

// TestLoadedChanges checks that each new resource of a bulk load is recorded, and no existing one.
func TestLoadedChanges(t *testing.T) {
	f := newFixture(t)
	f.create("clusters", "c-1", nil)
	f.load("clusters/bulk?if_exists=skip", `{"name":"c-1","spec":{}}`, `{"name":"c-2","spec":{}}`, `{"name":"c-3","spec":{}}`).want(200)
	got := whatWasDone(f.changes("?action=cluster-created"))
	slices.Sort(got)
	wantEqual(t, "created", []string{"cluster-created c-1 clusters/c-1", "cluster-created c-2 clusters/c-2", "cluster-created c-3 clusters/c-3"}, got)
}

// TestAPoolNamedLikeItsCluster checks that a pool's changes are not attributed to its cluster.
func TestAPoolNamedLikeItsCluster(t *testing.T) {
	f := newFixture(t)
	c := f.create("clusters", "same", nil)
	np := f.create("clusters/"+c.ID+"/nodepools", "same", nil)
	f.do("PATCH", "nodepools/"+np.ID, `{"labels":{"a":"1"}}`).want(200)
	wantEqual(t, "changes", []string{
		"nodepool-changed same nodepools/same", "nodepool-created same nodepools/same", "cluster-created same clusters/same",
	}, whatWasDone(f.changes("")))
}
