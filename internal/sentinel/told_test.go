package sentinel_test

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
	"github.com/fleetloop/fleetloop/internal/sentinel"
)

// sumOf adds up a number in log lines.
func sumOf(t *testing.T, lines []string, key string) (sum int) {
	t.Helper()
	number := regexp.MustCompile(key + `=(\d+)`)
	for _, line := range lines {
		found := number.FindStringSubmatch(line)
		if found == nil {
			t.Fatalf("no %s in %q", key, line)
		}
		n, err := strconv.Atoi(found[1])
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}

// TestEachFailureIsLogged: an event that is not published is an error with its
// resource. What fails again is counted in one line a round.
func TestEachFailureIsLogged(t *testing.T) {
	const n = 300
	inEveryMode(t, func(t *testing.T, _ sentinel.Mode, offer func(*feedAPI)) {
		t.Helper()
		var fleet []v1.Resource
		for i := range n {
			fleet = append(fleet, cluster(clusterID(i), "Provisioning", 2, 1))
		}
		api := newFeedAPI(fleet...)
		offer(api)
		var up atomic.Bool
		b := newFollower(t, api, func(c *sentinel.Config, _ *sentinel.Deps) { c.Publish.Attempts = 1 })
		b.broker.publish = func(context.Context, *cloudevent.Event) error {
			if up.Load() {
				return nil
			}
			return errDown
		}
		b.run(t)
		time.Sleep(32 * time.Second)
		synctest.Wait()
		for i := range n {
			wantCount(t, "lines of one resource",
				b.log.lines(`level=ERROR msg="event not published, retrying in the next poll" resource_type=clusters selector="" resource_id=`+clusterID(i)+" "), 1)
		}
		again := b.log.lines(`level=ERROR msg="events not published repeatedly, retrying in the next poll"`)
		if len(again) < 5 || len(again) > 8 {
			t.Errorf("%d lines about what failed again, want one a round", len(again))
		}
		if got, want := n+sumOf(t, again, "events"), b.metric(t, "broker_errors_total"); float64(got) != want {
			t.Errorf("%d failures were logged and %v counted", got, want)
		}

		up.Store(true)
		time.Sleep(5 * time.Second)
		up.Store(false)
		api.patch(clusterID(7))
		time.Sleep(5 * time.Second)
		synctest.Wait()
		wantCount(t, "lines of a resource that fails once more", b.log.lines("retrying in the next poll\" resource_type=clusters selector=\"\" resource_id="+clusterID(7)+" "), 2)
	})
}

// TestWarnsOfEachGenerationOnce: each resource whose adapters are ahead of it
// has the warning of the specification, once for each of its generations.
func TestWarnsOfEachGenerationOnce(t *testing.T) {
	const n = 50
	inEveryMode(t, func(t *testing.T, _ sentinel.Mode, offer func(*feedAPI)) {
		t.Helper()
		var fleet []v1.Resource
		for i := range n {
			fleet = append(fleet, cluster(clusterID(i), "Ready", 1, 9))
		}
		api := newFeedAPI(fleet...)
		offer(api)
		b := newFollower(t, api)
		b.run(t)
		time.Sleep(time.Minute)
		api.patch(clusterID(7))
		time.Sleep(time.Minute)
		synctest.Wait()
		const warning = `level=WARN msg="observed_generation ahead of generation - potential API issue"`
		for i := range n {
			want := 1
			if i == 7 {
				want = 2
			}
			wantCount(t, "warnings of one resource", b.log.lines(warning+` resource_type=clusters selector="" resource_id=`+clusterID(i)+" "), want)
		}
		if b.metric(t, "resource_warnings_total", "warning", "observed_generation ahead of generation - potential API issue") < n+1 {
			t.Error("the warnings are not counted")
		}
	})
}

// TestOmittedLinesAreCounted checks that a separate line reports the number of suppressed lines, at
// the latest when the sentinel stops.
func TestOmittedLinesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := clusterIDs(100)
		for i := range fleet {
			fleet[i].Labels = map[string]string{"region": "eu-west"}
		}
		api := newAPI(fleet...)
		api.ignoreLabels = true
		b := newFixture(t, api, func(c *sentinel.Config, _ *sentinel.Deps) { c.LabelSelector = "region=us-east" })
		stop := b.run(t)
		serve := func(others bool) {
			api.mu.Lock()
			defer api.mu.Unlock()
			api.ignoreLabels = others
		}
		time.Sleep(12 * time.Second)
		serve(false)
		time.Sleep(50 * time.Second)
		synctest.Wait()
		wantCount(t, "lines after a minute about what was left out", b.log.lines("similar log lines suppressed"), 1)
		serve(true)
		time.Sleep(7 * time.Second)
		stop()
		got := len(b.log.lines("resource that does not match the selector")) + sumOf(t, b.log.lines("omitted_before="), "omitted_before") +
			sumOf(t, b.log.lines("similar log lines suppressed"), "lines")
		if want := b.metric(t, "selector_mismatches_total"); float64(got) != want {
			t.Errorf("%d were logged or counted in the log, want %v", got, want)
		}
	})
}

// TestEachSkipIsLogged checks that each skipped resource has a line at debug, even without a
// lookup, and none at info.
func TestEachSkipIsLogged(t *testing.T) {
	inEveryMode(t, func(t *testing.T, _ sentinel.Mode, offer func(*feedAPI)) {
		t.Helper()
		api := newFeedAPI(clusterIDs(3)...)
		offer(api)
		b := newFollower(t, api)
		b.run(t)
		time.Sleep(time.Minute)
		synctest.Wait()
		before := len(b.log.lines("resource skipped"))
		time.Sleep(time.Minute)
		synctest.Wait()
		lines := b.log.lines("resource skipped")[before:]
		if len(lines) < 3*11 || len(lines) > 3*13 {
			t.Errorf("%d lines in 12 rounds of 3 resources", len(lines))
		}
		for _, line := range lines {
			if !strings.Contains(line, "level=DEBUG") || !strings.Contains(line, "reason=") || !strings.Contains(line, "next_event=") {
				t.Errorf("line %s", line)
			}
		}
	})
}
