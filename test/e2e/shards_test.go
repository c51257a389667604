package e2e

import (
	"fmt"
	"os"
	"testing"
)

// TestShards runs two sentinels with different selectors, and one whose
// selector overlaps with both. Each publishes only its own; where they overlap
// they publish the same event, under the same id. A configuration file that
// changes is not read again.
func TestShards(t *testing.T) {
	t.Parallel()
	f := newFleet(t, oneAdapter())
	const config = "poll_interval: 100ms\nmax_age_not_ready: 1h\nresource_type: clusters\nhyperfleet_api: {endpoint: API}\n"
	shards := map[string]struct {
		config string
		file   string
		queue  *queue
		proc   *process
		own    map[string]bool // by label region
	}{
		"east": {config: config + "resource_selector: [{label: region, value: us-east}, {label: tier, value: gold}]\n", own: map[string]bool{"us-east": true}},
		"west": {config: config + "resource_selector: [{label: region, value: us-west}]\n", own: map[string]bool{"us-west": true}},
		"us":   {config: config + "label_selector: 'region in (us-east, us-west), tier != silver'\n", own: map[string]bool{"us-east": true, "us-west": true}},
	}
	for name, s := range shards {
		s.queue = openQueue(t, binding{url: rabbit(t).URL(), exchange: "shard-" + name, queue: "shard-" + name})
		s.file = writeConfig(t, f.url, sentinelConfig(s.config))
		s.proc = start(t, "sentinel", sentinelEnv(rabbitEnv(rabbit(t).Addr(), "shard-"+name)), "--config", s.file)
		s.proc.wantReady(t)
		shards[name] = s
	}
	if err := os.WriteFile(shards["east"].file, []byte("resource_type: nodepools\nwhat is this?\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	regions := map[string]string{} // of each cluster
	for i := range 3 {
		for _, region := range []string{"us-east", "us-west", "eu-west"} {
			regions[f.create(t, fmt.Sprintf("%s-%d", region, i), "tier=gold,region="+region).ID] = region
		}
	}
	f.create(t, "silver", "tier=silver,region=us-east")
	f.create(t, "no-labels", "")

	for name, s := range shards {
		for id, region := range regions {
			if s.own[region] {
				s.queue.wantEvents(t, id, 1, patience)
			}
		}
		(&loop{fleet: f, sentinel: s.proc}).wantRounds(t, 3)
		for _, e := range s.queue.all() {
			if !s.own[regions[e.Subject]] {
				t.Errorf("%s published %s of region %q", name, e.Subject, regions[e.Subject])
			}
		}
	}
	for id, region := range regions {
		events := shards["us"].queue.of(id)
		for _, name := range []string{"east", "west"} {
			for i, e := range shards[name].queue.of(id) {
				if e.ID != events[i].ID {
					t.Errorf("%s of region %s: two sentinels call the same event %s and %s", id, region, e.ID, events[i].ID)
				}
			}
		}
	}
}
