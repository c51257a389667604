package admission_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/sentinel/sentinelconfig"
)

// TestRules: each rule refuses, in its words, what makes no sense, and lets
// its good neighbour pass. The operator refuses the same and takes the same.
func TestRules(t *testing.T) {
	t.Parallel()
	const duration = "must be a positive duration such as 10s, 30m or 1h30m"
	for name, tc := range map[string]struct {
		reason string
		bad    string   // beside what an object needs at least
		want   []string // what the API server says
		good   []string
	}{
		"ResourceType": {
			"the collections of the specification alone",
			"{resourceType: manifests}",
			[]string{`spec.resourceType: Unsupported value: "manifests": supported values: "clusters", "nodepools"`},
			[]string{"{resourceType: nodepools}", "{resourceType: clusters}"},
		},
		"NoResourceType": {
			"required by the specification",
			"{resourceType: null}",
			[]string{`spec.resourceType: Required value`},
			nil,
		},
		"NoAPI": {
			"required by the specification",
			"{hyperfleetAPI: null}",
			[]string{`spec.hyperfleetAPI: Required value`},
			nil,
		},
		"NoAPIURL": {
			"required by the specification",
			"{hyperfleetAPI: {timeout: 3s}}",
			[]string{`spec.hyperfleetAPI.url: Required value`},
			[]string{"{hyperfleetAPI: {url: 'https://api/', timeout: 3s}}"},
		},
		"NoBroker": {
			"required by the specification",
			"{broker: null}",
			[]string{`spec.broker: Required value`},
			nil,
		},
		"NoBrokerTypeAndTopic": {
			"required by the specification",
			"{broker: {url: 'amqp://x'}}",
			[]string{`spec.broker.topic: Required value`, `spec.broker.type: Required value`},
			nil,
		},
		"EmptyTopic": {
			"nothing could be published",
			"{broker: {type: nats, topic: '', url: 'nats://x'}}",
			[]string{`spec.broker.topic: Invalid value: "": spec.broker.topic in body should be at least 1 chars long`},
			nil,
		},
		"BrokerType": {
			"other spellings are for the environment",
			"{broker: {type: pubsub, topic: t, projectID: p}}",
			[]string{`spec.broker.type: Unsupported value: "pubsub": supported values: "gcp-pubsub", "rabbitmq", "nats"`},
			[]string{"{broker: {type: gcp-pubsub, topic: t, projectID: p}}", "{broker: {type: rabbitmq, topic: t, url: 'amqp://x'}}", "{broker: {type: nats, topic: t, url: 'nats://x'}}"},
		},
		"NumericLabel": {
			"labels are texts",
			"{shardSelector: {matchLabels: {shard: 1}}}",
			[]string{`spec.shardSelector.matchLabels.shard: Invalid value: "integer": spec.shardSelector.matchLabels.shard in body must be of type string: "integer"`},
			[]string{"{shardSelector: {matchLabels: {shard: '1'}}}", "{shardSelector: {}}", "{shardSelector: {matchLabels: {customer-id: acme, cloud-provider: aws}}}"},
		},
		"NumericDuration": {
			"durations are texts",
			"{pollInterval: 5}",
			[]string{`spec.pollInterval: Invalid value: "integer": spec.pollInterval in body must be of type string: "integer"`},
			[]string{"{pollInterval: 5s}"},
		},
		"Durations": {
			"all of them are looked at",
			"{backoffReady: soon, backoffNotReady: '10', pollInterval: -5s, hyperfleetAPI: {url: 'http://api', timeout: 0s}, source: {fullSweepInterval: 1d}}",
			[]string{
				`spec.backoffReady: Invalid value: "soon": ` + duration,
				`spec.backoffNotReady: Invalid value: "10": ` + duration,
				`spec.pollInterval: Invalid value: "-5s": ` + duration,
				`spec.hyperfleetAPI.timeout: Invalid value: "0s": ` + duration,
				`spec.source.fullSweepInterval: Invalid value: "1d": ` + duration,
			},
			[]string{
				"{backoffReady: 1h, backoffNotReady: 500ms, pollInterval: 2m30s, hyperfleetAPI: {url: 'http://api', timeout: 1.5s}, source: {fullSweepInterval: 1h30m}}",
				"{backoffReady: +1us, backoffNotReady: 1µs, pollInterval: .5s, source: {fullSweepInterval: 1.s}}",
			},
		},
		"TooLongADuration": {
			"beyond what can be counted",
			"{backoffReady: 99999999999h}",
			[]string{`spec.backoffReady: Invalid value: `, duration},
			[]string{"{backoffReady: 2562047h}"},
		},
		"NoURL": {
			"the value is not shown, it may hold a password",
			"{hyperfleetAPI: {url: 'ftp://api'}}",
			[]string{`spec.hyperfleetAPI.url: Invalid value: must be a URL such as http://hyperfleet-api:8080`},
			[]string{"{hyperfleetAPI: {url: 'http://api'}}", "{hyperfleetAPI: {url: 'https://api:8443/base/'}}", "{hyperfleetAPI: {url: 'http://[::1]:8080'}}"},
		},
		"NoHost": {
			"a path is a URL, and no API",
			"{hyperfleetAPI: {url: '/api'}}",
			[]string{`spec.hyperfleetAPI.url: Invalid value: must be a URL such as http://hyperfleet-api:8080`},
			nil,
		},
		"PasswordInURL": {
			"the url is shown to whoever may read the object",
			"{hyperfleetAPI: {url: 'https://me:canary@api'}}",
			[]string{`spec.hyperfleetAPI.url: Invalid value: must not contain a user name or password: put a token in a Secret and reference it in tokenSecretRef`},
			[]string{"{hyperfleetAPI: {url: 'https://api/@me', tokenSecretRef: {name: s}, headersSecretRef: {name: s}}}"},
		},
		"Flavour": {
			"the APIs that we know",
			"{hyperfleetAPI: {url: 'http://api', flavour: sweet}}",
			[]string{`spec.hyperfleetAPI.flavour: Unsupported value: "sweet": supported values: "auto", "fleetloop", "hyperfleet"`},
			[]string{"{hyperfleetAPI: {url: 'http://api', flavour: hyperfleet}}"},
		},
		"NoProject": {
			"Pub/Sub needs one",
			"{broker: {type: gcp-pubsub, topic: t, projectID: ''}}",
			[]string{`spec.broker.projectID: Required value: is required for type gcp-pubsub`},
			[]string{"{broker: {type: gcp-pubsub, topic: t, projectID: p, credentialsSecretRef: {name: s}}}"},
		},
		"NoAddress": {
			"RabbitMQ needs one",
			"{broker: {type: rabbitmq, topic: t, projectID: p}}",
			[]string{`spec.broker.url: Required value: is required for types rabbitmq and nats, here or in the Secret of credentialsSecretRef`},
			[]string{"{broker: {type: rabbitmq, topic: t, credentialsSecretRef: {name: s}}}", "{broker: {type: rabbitmq, topic: t, url: 'amqps://x', exchange: e, credentialsSecretRef: {name: s}}}"},
		},
		"NoAddressOfNATS": {
			"NATS too",
			"{broker: {type: nats, topic: t, url: ''}}",
			[]string{`spec.broker.url: Required value: is required for types rabbitmq and nats, here or in the Secret of credentialsSecretRef`},
			[]string{"{broker: {type: nats, topic: t, credentialsSecretRef: {name: s}}}", "{broker: {type: nats, topic: t, url: 'nats://a,nats://b'}}"},
		},
		"AddressOfSomethingElse": {
			"the value is not shown, it may hold a password",
			"{broker: {type: rabbitmq, topic: t, url: 'http://me:canary@rabbitmq'}}",
			[]string{`spec.broker.url: Invalid value: must be a RabbitMQ URL such as amqp://user:password@rabbitmq:5672/`},
			[]string{"{broker: {type: rabbitmq, topic: t, url: 'amqp://me:pw@rabbitmq/vhost'}}"},
		},
		"SecretWithoutName": {
			"references name something",
			"{broker: {type: nats, topic: t, credentialsSecretRef: {name: ''}}, hyperfleetAPI: {url: 'http://api', tokenSecretRef: {key: k}}}",
			[]string{`spec.broker.credentialsSecretRef.name: Invalid value: "": spec.broker.credentialsSecretRef.name in body should be at least 1 chars long`, `spec.hyperfleetAPI.tokenSecretRef.name: Required value`},
			[]string{"{hyperfleetAPI: {url: 'http://api', tokenSecretRef: {name: s, key: k}}}"},
		},
		"Operator": {
			"an operator that there is not, none, and a spelling of another grammar",
			"{shardSelector: {matchExpressions: [{key: a, operator: Foo, values: [b]}, {key: a}, {key: a, operator: in, values: [b]}]}}",
			[]string{
				`spec.shardSelector.matchExpressions[0]: Invalid value: operator must be In, NotIn, Exists or DoesNotExist`,
				`spec.shardSelector.matchExpressions[1]: Invalid value: operator must be In, NotIn, Exists or DoesNotExist`,
				`spec.shardSelector.matchExpressions[2]: Invalid value: operator must be In, NotIn, Exists or DoesNotExist`,
			},
			[]string{"{shardSelector: {matchLabels: {x: z}, matchExpressions: [{key: a, operator: In, values: [b, c]}, {key: d, operator: NotIn, values: [e]}, {key: f, operator: Exists}, {key: g, operator: DoesNotExist, values: []}]}}"},
		},
		"Key": {
			"which label",
			"{shardSelector: {matchExpressions: [{operator: Exists}, {key: '', operator: Exists}]}}",
			[]string{
				`spec.shardSelector.matchExpressions[0]: Invalid value: key is required`,
				`spec.shardSelector.matchExpressions[1]: Invalid value: key is required`,
			},
			nil,
		},
		"Values": {
			"those of In and NotIn",
			"{shardSelector: {matchExpressions: [{key: a, operator: In}, {key: a, operator: NotIn, values: []}, {key: a, operator: Exists, values: [b]}, {key: a, operator: DoesNotExist, values: [b]}]}}",
			[]string{
				`spec.shardSelector.matchExpressions[0]: Invalid value: values are required for the operators In and NotIn`,
				`spec.shardSelector.matchExpressions[1]: Invalid value: values are required for the operators In and NotIn`,
				`spec.shardSelector.matchExpressions[2]: Invalid value: values must be empty for the operators Exists and DoesNotExist`,
				`spec.shardSelector.matchExpressions[3]: Invalid value: values must be empty for the operators Exists and DoesNotExist`,
			},
			nil,
		},
		"Profile": {
			"a profile that there is not",
			"{decision: {profile: coin-toss}}",
			[]string{`spec.decision.profile: Unsupported value: "coin-toss": supported values: "transition-age", "generation-then-age", "expression"`},
			[]string{"{decision: {}}", "{decision: {profile: generation-then-age}}"},
		},
		"NoResult": {
			"the expression itself",
			"{decision: {profile: expression, params: [{name: a, expr: 'true'}]}}",
			[]string{`spec.decision.result: Required value: is required for the profile expression`},
			[]string{"{decision: {profile: expression, params: [{name: a, expr: 'true'}], result: a}, source: {mode: sweep}}"},
		},
		"ResultOfAnotherProfile": {
			"it would have no effect",
			"{decision: {result: 'true'}}",
			[]string{`spec.decision: Invalid value: params and result require the profile expression`},
			nil,
		},
		"ParamsOfAnotherProfile": {
			"they would have no effect",
			"{decision: {profile: generation-then-age, params: [{name: a, expr: 'true'}]}}",
			[]string{`spec.decision: Invalid value: params and result require the profile expression`},
			[]string{"{decision: {profile: generation-then-age, params: [], result: ''}}"},
		},
		"ModeOfExpression": {
			"an expression may change with the time alone",
			"{decision: {profile: expression, result: 'true'}, source: {mode: cursor}}",
			[]string{`spec.source.mode: Invalid value: the profile expression must evaluate every resource in every poll: source.mode must be auto or sweep`},
			[]string{"{decision: {profile: expression, result: 'true'}, source: {fullSweepInterval: 1m}}", "{source: {mode: cursor}}"},
		},
		"Mode": {
			"a mode that there is not",
			"{source: {mode: psychic}}",
			[]string{`spec.source.mode: Unsupported value: "psychic": supported values: "auto", "sweep", "etag", "cursor", "watch"`},
			[]string{"{source: {mode: watch}}"},
		},
		"Static": {
			"a part of how many",
			"{sharding: {index: 0}}",
			[]string{`spec.sharding: Invalid value: count and index are required for the mode static`},
			[]string{"{sharding: {count: 1, index: 0}}", "{sharding: {mode: static, count: 3, index: 2}}"},
		},
		"Index": {
			"a part that there is not",
			"{sharding: {count: 3, index: 3}}",
			[]string{`spec.sharding.index: Invalid value: must be less than count: the first index is 0`},
			nil,
		},
		"IndexBelow": {
			"a part that there is not",
			"{sharding: {count: 3, index: -1}}",
			[]string{`spec.sharding.index: Invalid value: -1: spec.sharding.index in body should be greater than or equal to 0`},
			nil,
		},
		"Count": {
			"more parts than anybody has use for",
			"{sharding: {count: 1025, index: 0}}",
			[]string{`spec.sharding.count: Invalid value: 1025: spec.sharding.count in body should be less than or equal to 1024`},
			[]string{"{sharding: {count: 1024, index: 1023}}"},
		},
		"Auto": {
			"the replicas count themselves",
			"{sharding: {mode: auto, count: 2, index: 1}}",
			[]string{`spec.sharding: Invalid value: count and index must not be set for the mode auto`},
			[]string{"{sharding: {mode: auto}}"},
		},
		"MessageData": {
			"a mapping",
			"{messageData: [a]}",
			[]string{`spec.messageData: Invalid value: "array": spec.messageData in body must be of type object: "array"`},
			[]string{"{messageData: {a: .id, b: {c: 'cel:1 + 1'}}}", "{messageData: {}}"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said, translated := try(t, tc.bad)
			switch {
			case said == nil:
				t.Errorf("%s: the API server takes it", tc.reason)
			case translated == nil:
				t.Errorf("%s: the operator takes it", tc.reason)
			default:
				for _, want := range tc.want {
					if !strings.Contains(said.Error(), want) {
						t.Errorf("%s: got %v, want %s", tc.reason, said, want)
					}
				}
				if strings.Contains(said.Error(), "canary") {
					t.Errorf("a password is shown: %v", said)
				}
			}
			for _, good := range tc.good {
				if said, translated := try(t, good); said != nil || translated != nil {
					t.Errorf("%s: refused by the API server with %v, by the operator with %v", good, said, translated)
				}
			}
		})
	}
}

// try sends a spec to the API server and to the operator.
func try(t *testing.T, spec string) (apiServer, operator error) {
	t.Helper()
	object := newObject(t, "tried", spec)
	_, apiServer = configs(t, "default").Create(t.Context(), object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
	var sc v1alpha1.SentinelConfig
	text, err := json.Marshal(object.Object)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &sc); err != nil {
		return apiServer, err
	}
	_, operator = sentinelconfig.TranslateSpec(&sc.Spec)
	return apiServer, operator
}

// TestDefaults checks that missing fields, and only those, get defaults.
func TestDefaults(t *testing.T) {
	namespace := kubebedtest.Namespace(t)
	got, err := configs(t, namespace).Create(t.Context(), newObject(t, "least", "{hyperfleetAPI: {url: 'http://api', tokenSecretRef: {name: s}}, decision: {}, sharding: {count: 1, index: 0}}"), metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"resourceType":    "clusters",
		"backoffNotReady": "10s",
		"backoffReady":    "30m",
		"pollInterval":    "5s",
		"hyperfleetAPI":   map[string]any{"url": "http://api", "timeout": "10s", "tokenSecretRef": map[string]any{"name": "s", "key": "token"}},
		"broker":          map[string]any{"type": "rabbitmq", "topic": "events", "url": "amqp://guest:guest@rabbitmq:5672/"}, //nolint:gosec // nobody has this password
		"decision":        map[string]any{"profile": "transition-age"},
		"sharding":        map[string]any{"mode": "static", "count": int64(1), "index": int64(0)},
	}
	if diff := cmp.Diff(want, got.Object["spec"]); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
