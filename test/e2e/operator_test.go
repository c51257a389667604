package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/internal/broker/nats"
	"github.com/fleetloop/fleetloop/internal/broker/nats/natsserver"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
	"github.com/fleetloop/fleetloop/internal/sentinel/operator"
)

// sc is a SentinelConfig as a user writes it, on RabbitMQ. NAME, URL, BROKER
// and EXCHANGE stand for what differs; more of the spec may follow.
const sc = `apiVersion: hyperfleet.redhat.com/v1alpha1
kind: SentinelConfig
metadata:
  name: NAME
spec:
  resourceType: clusters
  backoffNotReady: 1h
  pollInterval: 100ms
  hyperfleetAPI: {url: "URL"}
  broker: {type: rabbitmq, topic: EXCHANGE, url: "BROKER"}
  decision: {profile: generation-then-age}
`

// A fleetOnKube is a fleet whose sentinels are configured in the host cluster.
type fleetOnKube struct {
	*fleet
	*hostCluster
	queue *queue
}

func newFleetOnKube(t *testing.T, h *hostCluster) *fleetOnKube {
	t.Helper()
	exchange := exchangeOf(t)
	return &fleetOnKube{
		fleet: newFleet(t, oneAdapter()), hostCluster: h,
		queue: openQueue(t, binding{url: rabbit(t).URL(), exchange: exchange, queue: exchange + "-test"}),
	}
}

// config is sc with everything filled in.
func (f *fleetOnKube) config(t *testing.T, name, more string) string {
	t.Helper()
	return strings.NewReplacer("NAME", name, "URL", f.url, "BROKER", rabbit(t).URL(), "EXCHANGE", exchangeOf(t)).Replace(sc + more)
}

// TestOperator creates, changes, breaks, mends and deletes a SentinelConfig
// while the fleet changes. What is published follows, and kubectl says how it
// stands.
func TestOperator(t *testing.T) {
	t.Parallel()
	f := newFleetOnKube(t, newHostCluster(t))
	s := f.operator(t, f.account(t, operator.SentinelRoles{}), "--config=shard")
	first := f.create(t, "first", "region=east")
	s.wantLine(t, "sentinelconfig not found, waiting for it", map[string]any{"config": "shard", "namespace": f.namespace})

	// created
	f.apply(t, f.config(t, "shard", "  shardSelector: {matchLabels: {region: east}}\n"))
	f.queue.wantEvents(t, first.ID, 1, patience)
	f.wantColumns(t, "shard", map[string]string{"READY": "True", "RESOURCE": "clusters"})
	s.wantReady(t)
	west := f.create(t, "west", "region=west")

	// changed: another selector, without a restart
	f.apply(t, f.config(t, "shard", "  shardSelector: {matchLabels: {region: west}}\n"))
	f.queue.wantEvents(t, west.ID, 1, patience)
	f.wantCondition(t, "shard", "ConfigValid", "True", "")
	if n := len(f.queue.of(first.ID)); n != 1 {
		t.Errorf("%d events about a cluster that has been announced once and is watched no more, want 1", n)
	}

	// broken: what was good goes on, and everybody can see why
	f.apply(t, f.config(t, "shard", "  shardSelector: {matchLabels: {region: east}}\n  messageData: {id: \"{{.id\"}\n"))
	f.wantCondition(t, "shard", "ConfigValid", "False", "messageData")
	f.wantKubernetesEvent(t, "shard", "Warning", "messageData")
	wantMetric(t, s, "hyperfleet_sentinel_config_last_reload_successful", 0)
	another := f.create(t, "another", "region=west")
	f.queue.wantEvents(t, another.ID, 1, patience)
	s.wantReady(t)

	// mended
	f.apply(t, f.config(t, "shard", "  shardSelector: {matchExpressions: [{key: region, operator: Exists}]}\n  messageData: {id: .id, zone: .labels.region}\n"))
	f.wantCondition(t, "shard", "ConfigValid", "True", "")
	third := f.create(t, "third", "region=north")
	if e := f.queue.wantEvents(t, third.ID, 1, patience)[0]; e.str("zone") != "north" {
		t.Errorf("data %v, want what messageData asks for", e.data)
	}
	wantMetric(t, s, "hyperfleet_sentinel_config_last_reload_successful", 1)

	// deleted
	f.kubectl(t, "delete", "sentinelconfig", "shard")
	s.wantLine(t, "sentinel stopped", nil)
	late := f.create(t, "late", "region=east")
	f.apply(t, f.config(t, "shard", "  shardSelector: {matchLabels: {region: west}}\n"))
	f.wantColumns(t, "shard", map[string]string{"READY": "True"})
	after := f.create(t, "after", "region=west")
	f.queue.wantEvents(t, after.ID, 1, patience)
	if n := len(f.queue.of(late.ID)); n != 0 {
		t.Errorf("%d events about a cluster that was nobody's, want none", n)
	}
	if code := s.stop(t, os.Interrupt, patience); code != 0 {
		t.Errorf("the operator ended with code %d, want 0", code)
	}
}

// TestOperatorSwapsBrokers moves a sentinel from RabbitMQ to NATS while its
// fleet changes all the time: each generation that was announced was announced
// once, to one of the two, and the last ones to NATS.
func TestOperatorSwapsBrokers(t *testing.T) {
	t.Parallel()
	f := newFleetOnKube(t, newHostCluster(t))
	more := "  messageData: {generation: .generation}\n"
	f.apply(t, f.config(t, "moving", more))
	s := f.operator(t, f.account(t, operator.SentinelRoles{}), "--config=moving")
	s.wantReady(t)
	var ids []string
	for i := range 8 {
		ids = append(ids, f.create(t, fmt.Sprintf("cluster-%d", i), "").ID)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l := &load{answers: map[int]int{}, acked: map[string]int64{}}
	var clients sync.WaitGroup
	clients.Go(func() { l.run(ctx, f.api, ids) })
	wantMetric(t, s, "hyperfleet_sentinel_events_published_total", 100)

	stream := newStream(t)
	from := fmt.Sprintf("{type: rabbitmq, topic: %s, url: %q}", exchangeOf(t), rabbit(t).URL())
	f.apply(t, strings.Replace(f.config(t, "moving", more), from, fmt.Sprintf("{type: nats, topic: hyperfleet-events, url: %q}", stream.url), 1))
	eventually(t, patience, func() error {
		if len(stream.all()) < 100 {
			return fmt.Errorf("%d events on the other broker, want 100", len(stream.all()))
		}
		return nil
	})
	cancel()
	clients.Wait()
	s.wantRunning(t)
	for _, id := range ids {
		last := f.get(t, id).Generation
		eventually(t, patience, func() error {
			for _, e := range stream.all() {
				if e.Subject == id && string(e.Data) == fmt.Sprintf(`{"generation":"%d"}`, last) || e.Subject == id && string(e.Data) == fmt.Sprintf(`{"generation":%d}`, last) {
					return nil
				}
			}
			return fmt.Errorf("no event about generation %d of %s", last, id)
		})
	}
	seen := map[string]int{}
	for _, e := range f.queue.all() {
		seen[e.ID]++
	}
	for _, e := range stream.all() {
		seen[e.ID]++
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("event %s was published %d times", id, n)
		}
	}
	wantAllPublished(t, s, func() map[string]bool {
		delivered := map[string]bool{}
		for _, e := range f.queue.all() {
			delivered[e.ID] = true
		}
		for _, e := range stream.all() {
			delivered[e.ID] = true
		}
		return delivered
	})
}

// wantAllPublished waits until all that a sentinel counts as published has
// been delivered.
func wantAllPublished(t *testing.T, s *process, delivered func() map[string]bool) {
	t.Helper()
	published := s.log.find("event published")
	eventually(t, patience, func() error {
		have := delivered()
		for _, line := range published {
			if id, _ := line["event_id"].(string); !have[id] {
				return fmt.Errorf("event %s counts as published and was not delivered", id)
			}
		}
		return nil
	})
}

// A stream is a JetStream server with a consumer that keeps what comes.
type stream struct {
	url string

	mu     sync.Mutex
	events []cloudevent.Event
}

func newStream(t *testing.T) *stream {
	t.Helper()
	server, err := natsserver.NewBrokerStartingServerOnRun(natsserver.Config{Dir: t.TempDir()}, nats.Config{}, quiet())
	if err != nil {
		t.Fatal(err)
	}
	s := &stream{}
	consume(t, server, func(e cloudevent.Event) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.events = append(s.events, e)
	})
	s.url = server.URL()
	return s
}

func (s *stream) all() []cloudevent.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.events)
}

// TestOperatorWithoutItsAPIServer takes the API server away for a minute. The
// sentinel goes on publishing, and a change that was made after that takes
// effect.
func TestOperatorWithoutItsAPIServer(t *testing.T) {
	t.Parallel()
	f := newFleetOnKube(t, newLonelyCluster(t))
	f.apply(t, f.config(t, "alone", "  shardSelector: {matchLabels: {region: east}}\n"))
	s := f.operator(t, f.account(t, operator.SentinelRoles{}), "--config=alone")
	first := f.create(t, "first", "region=east")
	f.queue.wantEvents(t, first.ID, 1, patience)

	if err := f.bed.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	back := time.Now().Add(time.Minute)
	for i := 0; time.Now().Before(back); i++ {
		c := f.create(t, fmt.Sprintf("meanwhile-%d", i), "region=east")
		f.queue.wantEvents(t, c.ID, 1, patience)
		s.wantReady(t)
		waitFor(t, 5*time.Second)
	}
	if err := f.bed.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.apply(t, f.config(t, "alone", "  shardSelector: {matchLabels: {region: west}}\n"))
	west := f.create(t, "west", "region=west")
	f.queue.wantEvents(t, west.ID, 1, 2*time.Minute)
	f.wantColumns(t, "alone", map[string]string{"READY": "True"})
	for _, e := range f.queue.of(first.ID)[1:] {
		t.Errorf("event %s about a cluster that did not change", e.ID)
	}
}

// waitFor waits, unless the test ends.
func waitFor(t *testing.T, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
}

// TestOperatorOfAll runs every SentinelConfig of a namespace in one process.
// One that is broken, and one whose broker is not there, touch none of the others.
func TestOperatorOfAll(t *testing.T) {
	t.Parallel()
	f := newFleetOnKube(t, newHostCluster(t))
	regions := []string{"east", "west", "north"}
	for _, region := range regions {
		f.apply(t, f.config(t, region, "  shardSelector: {matchLabels: {region: "+region+"}}\n"))
	}
	f.apply(t, f.config(t, "broken", "  messageData: {id: \"{{.id\"}\n"))
	f.apply(t, strings.Replace(f.config(t, "lost", ""), rabbit(t).URL(), "amqp://guest:secret-word@127.0.0.1:1/", 1))
	s := f.operator(t, f.account(t, operator.SentinelRoles{}), "--all")
	for _, region := range regions {
		f.queue.wantEvents(t, f.create(t, region, "region="+region).ID, 1, patience)
		f.wantColumns(t, region, map[string]string{"READY": "True"})
	}
	f.wantCondition(t, "broken", "ConfigValid", "False", "messageData")
	f.wantCondition(t, "lost", "BrokerReachable", "False", "")
	for _, id := range slices.Sorted(maps.Keys(map[string]bool{"broken": true, "lost": true})) {
		f.wantColumns(t, id, map[string]string{"READY": "False"})
	}
	if out := f.kubectl(t, "get", "sentinelconfigs,events", "-o", "yaml"); strings.Count(out, "secret-word") != strings.Count(f.kubectl(t, "get", "sentinelconfig", "lost", "-o", "jsonpath={.spec.broker.url}{.metadata.annotations}"), "secret-word") {
		t.Errorf("a password stands where it was not written:\n%s", out)
	}
	if err := s.log.mentions("secret-word"); err == nil {
		t.Error("a password stands in the log")
	}
}

// write writes a text to a file of the test's own.
func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil { //nolint:gosec // the test names the file
		t.Fatal(err)
	}
	return file
}
