package fleetapi_test

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/changeevent"
)

func TestFilteredChangeEvents(t *testing.T) {
	f := newFixture(t)
	now := time.Now().Truncate(time.Millisecond)
	event := func(action, node, subject, source, who string, ago time.Duration) changeevent.Payload {
		e := changeevent.ChangeEvent{Action: action, NodeName: node, Subject: subject, Source: source, Session: "s-" + node, Timestamp: now.Add(-ago)}
		if who != "" {
			e.Details = map[string]string{"actor": who}
		}
		return changeevent.NewPayload(e)
	}
	drained := event("drain-started", "n-1", "", changeevent.SourceNodeDrainer, "", 2*time.Minute)
	drained.DryRun = true
	failed := event("uncordon", "n-2", "", changeevent.SourceFaultQuarantine, "", 3*time.Hour)
	failed.Outcome = changeevent.OutcomeFailed
	approved := event("execution-approved", "", "executions/scale-web", changeevent.SourceExecutionController, "alice@example.com", 4*24*time.Hour)
	approved.Reason = "100% of the load"
	f.tell("eu-1", []changeevent.Payload{event("cordon", "n-1", "", changeevent.SourceFaultQuarantine, "", time.Minute), drained, failed})
	f.tell("eu-2", approved)

	for query, want := range map[string][]string{
		"?cluster=eu-2":                  {"execution-approved eu-2 executions/scale-web"},
		"?node=n-1":                      {"cordon eu-1 n-1", "drain-started eu-1 n-1"},
		"?node=n-1&action=cordon":        {"cordon eu-1 n-1"},
		"?action=cordon,uncordon":        {"cordon eu-1 n-1", "uncordon eu-1 n-2"},
		"?actor=alice@example.com":       {"execution-approved eu-2 executions/scale-web"},
		"?actor=node-drainer":            {"drain-started eu-1 n-1"},
		"?actor=nvsentinel/node-drainer": {"drain-started eu-1 n-1"},
		"?actor=execution-controller":    {}, // a person is the actor
		"?source=execution-controller":   {"execution-approved eu-2 executions/scale-web"},
		"?subject=executions/scale-web":  {"execution-approved eu-2 executions/scale-web"},
		"?session=s-n-2":                 {"uncordon eu-1 n-2"},
		"?since=90m":                     {"cordon eu-1 n-1", "drain-started eu-1 n-1"},
		"?since=2d&until=1h":             {"uncordon eu-1 n-2"},
		"?until=" + now.Add(-time.Hour).UTC().Format(time.RFC3339) + "&cluster=eu-1": {"uncordon eu-1 n-2"},
		"?cluster=eu-3":                           {},
		"?cluster=eu-3,eu-2":                      {"execution-approved eu-2 executions/scale-web"},
		"?cluster=eu-1,eu-2&since=2d":             {"cordon eu-1 n-1", "drain-started eu-1 n-1", "uncordon eu-1 n-2"},
		"?outcome=failed":                         {"uncordon eu-1 n-2"},
		"?outcome=succeeded&node=n-2":             {},
		"?dry_run=true":                           {"drain-started eu-1 n-1"},
		"?dry_run=false&cluster=eu-1":             {"cordon eu-1 n-1", "uncordon eu-1 n-2"},
		"?text=execution%20SCALE":                 {"execution-approved eu-2 executions/scale-web"},
		"?text=" + url.QueryEscape("100% of THE"): {"execution-approved eu-2 executions/scale-web"},
		"?text=100_":                              {},
		"?nothing=known":                          {"cordon eu-1 n-1", "drain-started eu-1 n-1", "uncordon eu-1 n-2", "execution-approved eu-2 executions/scale-web"},
	} {
		wantEqual(t, query, want, whatWasDone(f.changes(query)))
	}
}

func TestBucketsOfChangeEvents(t *testing.T) {
	f := newFixture(t)
	since := time.Now().Add(-time.Hour).Truncate(time.Second).UTC()
	var told []changeevent.Payload
	for i := range 60 {
		e := done("cordon", fmt.Sprint("n-", i%55), since.Add(time.Duration(i)*time.Second))
		if i == 59 {
			e.Outcome = changeevent.OutcomeFailed
		}
		told = append(told, e)
	}
	f.tell("eu-1", told)
	f.tell("eu-2", done("cordon", "n-0", since.Add(15*time.Second)))
	count := func(query string) v1.ChangeBuckets {
		return read[v1.ChangeBuckets](f.do("GET", v1.ChangeBucketsPath+query, nil).want(http.StatusOK))
	}
	between := "&since=" + since.Format(time.RFC3339) + "&until=" + since.Add(time.Minute).Format(time.RFC3339)
	wantEqual(t, "by cluster", v1.ChangeBuckets{Since: since, Until: since.Add(time.Minute), StepSeconds: 20, Lanes: []v1.ChangeLane{
		{Name: "eu-1", Counts: []int64{20, 20, 20}, Failed: []int64{0, 0, 1}},
		{Name: "eu-2", Counts: []int64{1, 0, 0}, Failed: []int64{0, 0, 0}},
	}}, count("?buckets=3"+between))
	nodes := count("?by=node" + between)
	wantEqual(t, "lanes and more", []int{50, 6}, []int{len(nodes.Lanes), nodes.MoreLanes})
	first := nodes.Lanes[0]
	wantEqual(t, "the lane with the most events", []any{"n-0", "eu-1", 60}, []any{first.Name, first.Cluster, len(first.Counts)})
	wantEqual(t, "steps are whole seconds", 1, int(count("?buckets=500"+between).StepSeconds))
	failures := count("?by=actor&outcome=failed&buckets=1&text=cordoned" + between)
	wantEqual(t, "failures", []v1.ChangeLane{{Name: "nvsentinel/fault-quarantine", Counts: []int64{1}, Failed: []int64{1}}}, failures.Lanes)
	day := count("")
	if got := day.Until.Sub(day.Since); got != 24*time.Hour || day.StepSeconds != 24*60 || len(day.Lanes[0].Counts) != 60 {
		t.Errorf("without parameters it counts %s in steps of %d s", got, day.StepSeconds)
	}
	wantEqual(t, "without events", v1.ChangeBuckets{Since: since, Until: since.Add(time.Second), StepSeconds: 1, Lanes: []v1.ChangeLane{}},
		count("?cluster=eu-3&since="+since.Format(time.RFC3339)+"&until="+since.Add(time.Second).Format(time.RFC3339)))
	for query, field := range map[string]string{
		"?by=subject": "by", "?buckets=501": "buckets", "?buckets=0": "buckets", "?since=1h&until=2h": "until", "?until=200d": "until",
		"?outcome=maybe": "outcome", "?dry_run=perhaps": "dry_run", "?strict=true&limit=3": "limit",
	} {
		p := f.do("GET", v1.ChangeBucketsPath+query, nil).problem(400, "invalid_query", "")
		wantEqual(t, query, field, p.Errors[0].Field)
	}
	f.tell("buckets", done("cordon", "n-1", since)) // a cluster may have the name
}

// TestTextSearchBesideNUL checks that a spec or an event with the character NUL, of which PostgreSQL makes no text, fails
// no search for a text.
func TestTextSearchBesideNUL(t *testing.T) {
	t.Parallel()
	f := newFixtureWith(t, options{cfg: defaults(), tokens: tokensOfRoles}).as("red")
	f.do("POST", "clusters", `{"name":"c-nul","spec":{"a":["\u0000"],"b\u0000":{"\u0000":"\u0000"},"c":"\u0000"}}`).want(http.StatusCreated)
	f.tell("c-nul", `{"action":"cordon","timestamp":"`+time.Now().UTC().Format(time.RFC3339)+`","source":"test","cluster":"c-nul","node":"node-1","summary":"a\u0000b",`+
		`"changes":[{"field":"spec.a","after":["\u0000",{"\u0000":1}]}]}`)
	for _, role := range []string{"red", "viewer"} {
		wantEqual(t, role, []string{"cluster-created c-nul clusters/c-nul"}, whatWasDone(f.as(role).changes("?text=CREATED")))
		wantEqual(t, role, []string{"cordon c-nul node-1"}, whatWasDone(f.as(role).changes("?text=a%20b")))
		wantEqual(t, role, 0, len(f.as(role).changes("?text=x").Items))
	}
}
