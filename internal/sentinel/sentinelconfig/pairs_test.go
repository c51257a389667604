package sentinelconfig_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"sigs.k8s.io/yaml"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/sentinel"
	"github.com/fleetloop/fleetloop/internal/sentinel/sentinelconfig"
	"github.com/fleetloop/fleetloop/internal/settings"
)

func newSpec(t *testing.T, text string) *v1alpha1.SentinelConfigSpec {
	t.Helper()
	var spec v1alpha1.SentinelConfigSpec
	if err := yaml.UnmarshalStrict([]byte(text), &spec); err != nil {
		t.Fatal(err)
	}
	return &spec
}

// TestPairs checks that an object and a file with the same content give the same settings.
func TestPairs(t *testing.T) {
	t.Parallel()
	// The content of every file of this test, because the defaults of the two differ.
	const common = "payload_key_case: camel\n"
	for name, tc := range map[string]struct {
		reason     string
		spec, file string
	}{
		"Smallest": {
			"everything that is left out is at the same default",
			`{resourceType: clusters, hyperfleetAPI: {url: "http://api:8080"}, broker: {type: gcp-pubsub, topic: t, projectID: p}}`,
			"resource_type: clusters\nhyperfleet_api: {endpoint: 'http://api:8080'}\ndecision: {profile: transition-age}\n",
		},
		"Specification": {
			"the specification's complete sample",
			`
resourceType: clusters
backoffNotReady: 10s
backoffReady: 30m
shardSelector:
  matchLabels:
    region: us-east
hyperfleetAPI:
  url: http://hyperfleet-api.hyperfleet-system.svc.cluster.local:8080
  timeout: 10s
broker: {type: gcp-pubsub, topic: hyperfleet-events, projectID: hyperfleet-prod}
pollInterval: 5s
`,
			`
resource_type: clusters
max_age_not_ready: 10s
max_age_ready: 30m
resource_selector:
  - {label: region, value: us-east}
hyperfleet_api:
  endpoint: http://hyperfleet-api.hyperfleet-system.svc.cluster.local:8080
  timeout: 10s
poll_interval: 5s
decision: {profile: transition-age}
`,
		},
		"Everything": {
			"every field that has a counterpart in the file",
			`
resourceType: nodepools
backoffNotReady: 1m30s
backoffReady: 1h
pollInterval: 500ms
shardSelector:
  matchLabels: {region: us-east, customer-id: acme, e: f, a: b, g: h, c: d}
  matchExpressions:
    - {key: tier, operator: In, values: [b, a]}
    - {key: environment, operator: NotIn, values: [dev]}
    - {key: old, operator: DoesNotExist}
    - {key: cloud-provider, operator: Exists}
    - {key: i, operator: In, values: ['']}
hyperfleetAPI: {url: "https://api", timeout: 3s, flavour: hyperfleet}
broker: {type: rabbitmq, topic: t, url: "amqp://guest:guest@rabbitmq:5672/"}
messageData:
  generation: "cel:resource.generation + 1"
  nested: {number: 5, deep: {alive: true, region: .metadata.labels.region}}
  text: "{{.id}}"
decision: {profile: generation-then-age}
source: {mode: cursor, fullSweepInterval: 5m}
`,
			`
resource_type: nodepools
max_age_not_ready: 1m30s
max_age_ready: 1h
poll_interval: 500ms
resource_selector:
  - {label: a, value: b}
  - {label: c, value: d}
  - {label: customer-id, value: acme}
  - {label: e, value: f}
  - {label: g, value: h}
  - {label: region, value: us-east}
label_selector: "cloud-provider,environment!=dev,i=,!old,tier in (a,b)"
hyperfleet_api: {endpoint: "https://api", timeout: 3s, flavour: hyperfleet}
message_data:
  generation: "cel:resource.generation + 1"
  nested: {deep: {alive: true, region: .metadata.labels.region}, number: 5}
  text: "{{.id}}"
decision: {profile: generation-then-age}
source: {mode: cursor, full_sweep_interval: 5m}
`,
		},
		"Expression": {
			"the profile expression, with params in their order",
			`
resourceType: clusters
shardSelector: {}
hyperfleetAPI: {url: "http://api"}
broker: {type: nats, topic: t, url: "nats://a,nats://b"}
decision:
  profile: expression
  params:
    - {name: ready, expr: 'resource.status.phase == "Ready"'}
    - {name: age, expr: 'ready ? duration("30m") : duration("10s")'}
  result: now - timestamp(resource.status.lastTransitionTime) >= age
`,
			`
resource_type: clusters
hyperfleet_api: {endpoint: "http://api"}
decision:
  profile: expression
  params:
    - {name: ready, expr: 'resource.status.phase == "Ready"'}
    - {name: age, expr: 'ready ? duration("30m") : duration("10s")'}
  result: now - timestamp(resource.status.lastTransitionTime) >= age
`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := sentinelconfig.TranslateSpec(newSpec(t, tc.spec))
			if err != nil {
				t.Fatal(err)
			}
			var want sentinel.Config
			if _, err := settings.Load(&want, settings.Source{File: "sentinel.yaml", FileData: []byte(common + tc.file)}); err != nil {
				t.Fatal(err)
			}
			// An object has no lines.
			places := cmpopts.IgnoreFields(settings.MapEntry{}, "Line", "Column")
			if diff := cmp.Diff(want, got.Sentinel, places); diff != "" {
				t.Errorf("%s: -file +object\n%s", tc.reason, diff)
			}
		})
	}
}

func TestBrokerAndSharding(t *testing.T) {
	t.Parallel()
	const rest = "{resourceType: clusters, hyperfleetAPI: {url: 'http://api'}, "
	for name, tc := range map[string]struct {
		reason string
		spec   string
		want   sentinelconfig.Settings
	}{
		"PubSub": {
			"what other brokers need is left out",
			"broker: {type: gcp-pubsub, topic: t, projectID: p, url: 'amqp://x', exchange: e}}",
			sentinelconfig.Settings{Broker: sentinelconfig.Broker{Type: "gcp-pubsub", Topic: "t", ProjectID: "p"}},
		},
		"RabbitMQ": {
			"the exchange is the topic",
			"broker: {type: rabbitmq, topic: t, projectID: p, url: 'amqp://u:p,w@x/vhost'}}",
			sentinelconfig.Settings{Broker: sentinelconfig.Broker{Type: "rabbitmq", Topic: "t", Exchange: "t", URL: "amqp://u:p,w@x/vhost"}},
		},
		"Exchange": {
			"the exchange has a name of its own",
			"broker: {type: rabbitmq, topic: t, exchange: e, url: 'amqps://x'}}",
			sentinelconfig.Settings{Broker: sentinelconfig.Broker{Type: "rabbitmq", Topic: "t", Exchange: "e", URL: "amqps://x"}},
		},
		"NATS": {
			"several servers, with and without their scheme",
			"broker: {type: nats, topic: t, exchange: e, url: 'nats://a:4222, b'}}",
			sentinelconfig.Settings{Broker: sentinelconfig.Broker{Type: "nats", Topic: "t", URL: "nats://a:4222, b"}},
		},
		"Static": {
			"a fixed part",
			"broker: {type: nats, topic: t, url: a}, sharding: {count: 3, index: 2}}",
			sentinelconfig.Settings{
				Broker:   sentinelconfig.Broker{Type: "nats", Topic: "t", URL: "a"},
				Sharding: sentinelconfig.Sharding{Mode: "static", Count: 3, Index: 2},
			},
		},
		"Auto": {
			"parts that the replicas agree on",
			"broker: {type: nats, topic: t, url: a}, sharding: {mode: auto}}",
			sentinelconfig.Settings{Broker: sentinelconfig.Broker{Type: "nats", Topic: "t", URL: "a"}, Sharding: sentinelconfig.Sharding{Mode: "auto"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := sentinelconfig.TranslateSpec(newSpec(t, rest+tc.spec))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got, cmpopts.IgnoreFields(sentinelconfig.Settings{}, "Sentinel"), cmpopts.IgnoreUnexported(sentinelconfig.Settings{})); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
			if got.Broker.URL != tc.want.Broker.URL { // go-cmp goes by the text, which is hidden
				t.Errorf("%s: the url is another", tc.reason)
			}
		})
	}
}
