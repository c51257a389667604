package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	sdk "github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
)

const clusterEvent = "com.redhat.hyperfleet.cluster.reconcile"

// messageData has every form that a value can take, and some that are hard to
// get right.
const messageData = `
poll_interval: 200ms
max_age_not_ready: 1h # so that the id is of the first interval, however late the test gets its turn
resource_selector:
  - label: region
    value: us-east
message_data:
  resource_id: .id
  resource_type: .kind
  region: .metadata.labels.region
  display_name: '{{if .metadata.displayName}}{{.metadata.displayName}}{{else}}{{.metadata.name}}{{end}}'
  generation: .generation
  large: .spec.large
  yes: .spec.yes
  object: .spec.object
  note: .spec.note
  missing: .metadata.labels.nosuch
  nowhere: .nosuch.at.all
  number: 'cel:resource.generation + 1'
  reason: 'cel:reason'
  constant: cluster
`

const hardSpec = `{"large":1000000,"yes":true,"object":{"a":null,"b":[1,2]},"note":"a \"quote\", a\nbreak, \u2028 and ünïcode"}`

// TestEventPublishing is the specification's integration test 1: the event in
// the queue is, byte for byte, the one that the resource calls for, in both
// modes, in every queue that is bound.
func TestEventPublishing(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil)
	cluster, err := f.api.Clusters().Create(t.Context(), v1.CreateRequest{
		Name:     "cluster-1",
		Metadata: &v1.Metadata{DisplayName: `The "first" <one>`, Labels: map[string]string{"region": "us-east"}},
		Spec:     json.RawMessage(hardSpec),
	})
	if err != nil {
		t.Fatal(err)
	}
	other := f.create(t, "cluster-2", "region=us-west")

	for _, mode := range []string{"structured", "binary"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			exchange := "publishing-" + mode
			queues := []*queue{
				openQueue(t, binding{url: rabbit(t).URL(), exchange: exchange, queue: exchange + "-a", key: "a"}),
				openQueue(t, binding{url: rabbit(t).URL(), exchange: exchange, queue: exchange + "-b", key: "b"}),
			}
			env := rabbitEnv(rabbit(t).Addr(), exchange)
			env["BROKER_EVENT_MODE"] = mode
			begin := time.Now()
			s := newSentinel(t, f.url, "resource_type: clusters\nhyperfleet_api: {endpoint: API}\n"+messageData, env)
			for _, q := range queues {
				e := q.wantEvents(t, cluster.ID, 1, patience)[0]
				wantEnvelope(t, e, cluster, begin)
				wantMessage(t, e, mode, exchange)
				if diff := cmp.Diff(wantData(cluster.ID), string(e.Data)); diff != "" {
					t.Errorf("data (-want +got):\n%s", diff)
				}
			}
			s.wantLine(t, "event published", map[string]any{"resource_id": cluster.ID, "reason": reasonGeneration})
			s.wantLine(t, "message_data field is empty", map[string]any{"resource_id": cluster.ID, "key": "message_data.missing", "level": "warn"})
			s.wantLine(t, "message_data field is empty", map[string]any{"resource_id": cluster.ID, "key": "message_data.nowhere", "level": "warn"})
			for _, q := range queues {
				if len(q.of(other.ID)) != 0 || len(q.all()) != 1 {
					t.Errorf("queue %s has %d events, %d of them about a cluster of another region; want one event", q.name, len(q.all()), len(q.of(other.ID)))
				}
			}
		})
	}
}

// wantData is the data of the event, letter for letter.
func wantData(id string) string {
	return `{"resource_id":"` + id + `","resource_type":"Cluster","region":"us-east","display_name":"The \"first\" <one>",` +
		`"generation":"1","large":"1000000","yes":"true","object":"{\"a\":null,\"b\":[1,2]}",` +
		`"note":"a \"quote\", a\nbreak, ` + "\u2028" + ` and ünïcode","missing":"","nowhere":"","number":2,` +
		`"reason":"generation changed - new spec to reconcile","constant":"cluster"}`
}

// wantEnvelope checks the attributes, and that the id follows from what the
// API says of the resource.
func wantEnvelope(t *testing.T, e received, r v1.Resource, begin time.Time) {
	t.Helper()
	if e.Type != clusterEvent || e.Source != "hyperfleet-sentinel" || e.Subject != r.ID {
		t.Errorf("type %q, source %q, subject %q; want %q, hyperfleet-sentinel, %q", e.Type, e.Source, e.Subject, clusterEvent, r.ID)
	}
	if e.Time.Before(begin) || e.Time.After(time.Now()) || e.Time.Location() != time.UTC {
		t.Errorf("time %s, want a time of now in UTC", e.Time)
	}
	if !regexp.MustCompile(`^evt-[0-9a-f]{32}$`).MatchString(e.ID) {
		t.Errorf("id %q, want evt- and 32 hexadecimal digits", e.ID)
	}
	verdict := decision.Verdict{Reason: decision.ReasonGenerationChanged, Since: r.UpdatedTime, Next: r.UpdatedTime, Interval: time.Hour}
	if want := decision.DeriveEventID(r.ID, r.Generation, verdict, e.Time); e.ID != want {
		t.Errorf("id %q, want %q, as the resource says", e.ID, want)
	}
}

// wantMessage checks how the event is laid out in the message.
func wantMessage(t *testing.T, e received, mode, exchange string) {
	t.Helper()
	d := e.delivery
	if d.Exchange != exchange || d.RoutingKey != clusterEvent || d.DeliveryMode != 2 || d.MessageId != e.ID || d.Type != clusterEvent {
		t.Errorf("exchange %q, routing key %q, delivery mode %d, message id %q, type %q; want %q, %q, 2 (persistent), %q, %q",
			d.Exchange, d.RoutingKey, d.DeliveryMode, d.MessageId, d.Type, exchange, clusterEvent, e.ID, clusterEvent)
	}
	at := e.Time.Format(time.RFC3339Nano)
	if mode == "binary" {
		want := map[string]any{
			"cloudEvents:specversion": "1.0", "cloudEvents:type": clusterEvent, "cloudEvents:source": "hyperfleet-sentinel",
			"cloudEvents:id": e.ID, "cloudEvents:time": at, "cloudEvents:subject": e.Subject,
		}
		if diff := cmp.Diff(want, map[string]any(d.Headers)); diff != "" || d.ContentType != "application/json" {
			t.Errorf("content type %q, headers (-want +got):\n%s", d.ContentType, diff)
		}
		return
	}
	want := fmt.Sprintf(`{"specversion":"1.0","type":%q,"source":"hyperfleet-sentinel","id":%q,"time":%q,"datacontenttype":"application/json","subject":%q,"data":%s}`,
		clusterEvent, e.ID, at, e.Subject, wantData(e.Subject))
	if diff := cmp.Diff(want, string(d.Body)); diff != "" || d.ContentType != "application/cloudevents+json" {
		t.Errorf("content type %q, body (-want +got):\n%s", d.ContentType, diff)
	}
	var theirs sdk.Event
	if err := json.Unmarshal(d.Body, &theirs); err != nil || theirs.Validate() != nil {
		t.Errorf("the CloudEvents SDK finds fault with it: %v, %v", err, theirs.Validate())
	}
}

// TestResourceTypes holds that the same binary watches every type by
// configuration alone, and names the events after it. Without message_data
// the data are the resource's type and id, and the reason.
func TestResourceTypes(t *testing.T) {
	t.Parallel()
	f := newFleet(t, map[string]string{
		"FLEET_API_REQUIRED_ADAPTERS_MANIFESTS": "dns", "FLEET_API_REQUIRED_ADAPTERS_WORKLOADS": "dns",
	})
	q := openQueue(t, binding{url: rabbit(t).URL(), exchange: "types", queue: "types"})
	parent := f.create(t, "parent", "")
	resources := map[string]v1.Resource{v1.CollectionClusters: parent}
	for collection, path := range map[string]string{
		v1.CollectionNodePools: fleetclient.Nested(v1.CollectionClusters, parent.ID, v1.CollectionNodePools),
		v1.CollectionManifests: v1.CollectionManifests,
		v1.CollectionWorkloads: v1.CollectionWorkloads,
	} {
		r, err := f.api.Collection(path).Create(t.Context(), v1.CreateRequest{Name: "one", Spec: json.RawMessage(`{}`)})
		if err != nil {
			t.Fatal(err)
		}
		resources[collection] = r
	}
	for collection := range resources {
		newSentinel(t, f.url, "hyperfleet_api: {endpoint: API}\n", mergeEnv(
			rabbitEnv(rabbit(t).Addr(), "types"), map[string]string{"SENTINEL_RESOURCE_TYPE": collection}))
	}
	for collection, r := range resources {
		e := q.wantEvents(t, r.ID, 1, patience)[0]
		if want := "com.redhat.hyperfleet." + collection[:len(collection)-1] + ".reconcile"; e.Type != want || e.delivery.RoutingKey != want {
			t.Errorf("%s: type %q and routing key %q, want %q", collection, e.Type, e.delivery.RoutingKey, want)
		}
		want := `{"resource_type":"` + collection + `","resource_id":"` + r.ID + `","reason":"` + reasonGeneration + `"}`
		if string(e.Data) != want {
			t.Errorf("%s: data %s, want %s", collection, e.Data, want)
		}
	}
}

// TestNodePoolSample runs the specification's sample for node pools, which
// links each to its cluster.
func TestNodePoolSample(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil)
	parent := f.create(t, "parent", "")
	pool, err := f.api.Collection(fleetclient.Nested(v1.CollectionClusters, parent.ID, v1.CollectionNodePools)).Create(t.Context(),
		v1.CreateRequest{Name: "workers", Spec: json.RawMessage(`{}`)})
	if err != nil {
		t.Fatal(err)
	}
	q := openQueue(t, binding{url: rabbit(t).URL(), exchange: "sample", queue: "sample"})
	env := mergeEnv(sentinelEnv(rabbitEnv(rabbit(t).Addr(), "sample")), map[string]string{"HYPERFLEET_API_ENDPOINT": f.url})
	start(t, "sentinel", env, "--config", filepath.Join(specification, "service/sentinel-nodepools-config.yaml"))
	e := q.wantEvents(t, pool.ID, 1, patience)[0]
	if want := `{"resource_id":"` + pool.ID + `","resource_type":"NodePool","cluster_id":"` + parent.ID + `"}`; string(e.Data) != want {
		t.Errorf("data %s, want %s", e.Data, want)
	}
}

// TestRabbitMQSettings holds that virtual host, user, exchange type and
// routing key are those of the environment.
func TestRabbitMQSettings(t *testing.T) {
	t.Parallel()
	server := rabbit(t)
	for _, args := range [][]string{
		{"add_vhost", "fleet"},
		{"add_user", "sentinel", "its password"},
		{"set_permissions", "-p", "fleet", "sentinel", ".*", ".*", ".*"},
		{"set_permissions", "-p", "fleet", "guest", ".*", ".*", ".*"},
	} {
		if _, err := server.RunRabbitMQCtl(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
	}
	f := newFleet(t, nil)
	c := f.create(t, "cluster-1", "")
	b := binding{url: server.URL() + "fleet", exchange: "by-topic", exchangeType: "topic", queue: "mine", key: "east.*"}
	mine := openQueue(t, b)
	b.queue, b.key = "others", "west.*"
	others := openQueue(t, b)
	env := mergeEnv(rabbitEnv(server.Addr(), "by-topic"), map[string]string{
		"BROKER_VHOST": "fleet", "BROKER_USERNAME": "sentinel", "BROKER_PASSWORD": "its password",
		"BROKER_EXCHANGE_TYPE": "topic", "BROKER_ROUTING_KEY": "east.clusters",
	})
	s := newSentinel(t, f.url, "resource_type: clusters\nhyperfleet_api: {endpoint: API}\n", env)
	if e := mine.wantEvents(t, c.ID, 1, patience)[0]; e.delivery.RoutingKey != "east.clusters" {
		t.Errorf("routing key %q, want east.clusters", e.delivery.RoutingKey)
	}
	s.wantReady(t)
	if len(others.all()) != 0 {
		t.Errorf("%d events for another routing key", len(others.all()))
	}
}

// TestNoQueue holds that an event that reached no queue is not published: it
// is tried again until there is one, and until then the sentinel is not ready
// and says what to do. Publish is bounded so that a round does not take long.
func TestNoQueue(t *testing.T) {
	t.Parallel()
	f := newFleet(t, oneAdapter())
	c := f.create(t, "cluster-1", "")
	s := newSentinel(t, f.url, "resource_type: clusters\npoll_interval: 100ms\nmax_age_not_ready: 1h\nhyperfleet_api: {endpoint: API}\npublish: {max_attempts: 2, initial_backoff: 10ms}\n",
		rabbitEnv(rabbit(t).Addr(), exchangeOf(t)))
	wantMetric(t, s, "hyperfleet_sentinel_broker_errors_total", 3)
	if n := s.metrics(t).sum("hyperfleet_sentinel_events_published_total"); n != 0 {
		t.Errorf("%g events count as published, and there is no queue", n)
	}
	s.wantLine(t, "event not published, retrying in the next poll", map[string]any{"resource_id": c.ID})
	s.wantUnready(t, "[-]broker failed: the last event was not published: ", fmt.Sprintf("exchange %q has no queue", exchangeOf(t)), "start a consumer or bind a queue")
	q := openQueue(t, binding{url: rabbit(t).URL(), exchange: exchangeOf(t), queue: exchangeOf(t)})
	q.wantEvents(t, c.ID, 1, patience)
	wantMetric(t, s, "hyperfleet_sentinel_events_published_total", 1)
	s.wantReady(t)
}

// TestWrongPassword holds that credentials that the broker refuses are a
// reason to wait, for they can be mended there.
func TestWrongPassword(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil)
	s := newSentinel(t, f.url, "resource_type: clusters\npoll_interval: 100ms\nhyperfleet_api: {endpoint: API}\n",
		mergeEnv(rabbitEnv(rabbit(t).Addr(), exchangeOf(t)), map[string]string{"BROKER_USERNAME": "late", "BROKER_PASSWORD": "canary-word"}))
	s.wantUnready(t, "[-]broker failed: not connected: ", "not allowed")
	if _, err := rabbit(t).RunRabbitMQCtl(t.Context(), "add_user", "late", "canary-word"); err != nil {
		t.Fatal(err)
	}
	if _, err := rabbit(t).RunRabbitMQCtl(t.Context(), "set_permissions", "late", ".*", ".*", ".*"); err != nil {
		t.Fatal(err)
	}
	s.wantReady(t)
	if strings.Contains(s.log.String(), "canary-word") {
		t.Error("the log has the password")
	}
}

func mergeEnv(env ...map[string]string) map[string]string {
	all := map[string]string{}
	for _, e := range env {
		maps.Copy(all, e)
	}
	return all
}
