package sentinelconfig_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/sentinel"
	"github.com/fleetloop/fleetloop/internal/sentinel/sentinelconfig"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// newValid returns a valid spec.
func newValid() *v1alpha1.SentinelConfigSpec {
	return &v1alpha1.SentinelConfigSpec{
		ResourceType:  "clusters",
		HyperfleetAPI: v1alpha1.HyperfleetAPI{URL: "http://api:8080"},
		Broker:        v1alpha1.Broker{Type: v1alpha1.BrokerRabbitMQ, Topic: "events", URL: "amqp://guest:guest@rabbitmq:5672/"}, //nolint:gosec // nobody has this password
	}
}

func TestErrorsNameTheField(t *testing.T) {
	t.Parallel()
	data := func(text string) *apiextensionsv1.JSON { return &apiextensionsv1.JSON{Raw: []byte(text)} }
	for name, tc := range map[string]struct {
		reason string
		spoil  func(*v1alpha1.SentinelConfigSpec)
		want   []string // lines
	}{
		"Nothing": {
			"a spec with nothing in it",
			func(s *v1alpha1.SentinelConfigSpec) { *s = v1alpha1.SentinelConfigSpec{} },
			[]string{
				`spec.resourceType: "" is invalid: must be one of clusters, nodepools`,
				`spec.hyperfleetAPI.url: is required`,
				`spec.broker.topic: is required`,
				`spec.broker.type: "" is invalid: must be one of gcp-pubsub, rabbitmq, nats`,
			},
		},
		"Resource": {
			"a collection that the engine knows and the object does not",
			func(s *v1alpha1.SentinelConfigSpec) { s.ResourceType = "manifests" },
			[]string{`spec.resourceType: "manifests" is invalid: must be one of clusters, nodepools`},
		},
		"Durations": {
			"all of them are read, and named at once",
			func(s *v1alpha1.SentinelConfigSpec) {
				s.BackoffReady, s.BackoffNotReady, s.PollInterval, s.HyperfleetAPI.Timeout = "soon", "5", "-5s", "0s"
				s.Source = &v1alpha1.Source{FullSweepInterval: "999999999999h"}
			},
			[]string{
				`spec.pollInterval: "-5s" is invalid: must be positive`,
				`spec.backoffNotReady: "5" is invalid: must be a duration such as 10s or 1h30m`,
				`spec.backoffReady: "soon" is invalid: must be a duration such as 10s or 1h30m`,
				`spec.hyperfleetAPI.timeout: "0s" is invalid: must be positive`,
				`spec.source.fullSweepInterval: "999999999999h" is invalid: must be a duration such as 10s or 1h30m`,
			},
		},
		"Operator": {
			"an operator that there is not",
			func(s *v1alpha1.SentinelConfigSpec) {
				s.ShardSelector = &v1alpha1.ShardSelector{MatchExpressions: []v1alpha1.LabelExpression{
					{Key: "a", Operator: "Exists"}, {Key: "b", Operator: "Foo"}, {Key: "c", Operator: "in", Values: []string{"d"}}, {},
				}}
			},
			[]string{
				`spec.shardSelector.matchExpressions[1].operator: "Foo" is invalid: must be In, NotIn, Exists or DoesNotExist`,
				`spec.shardSelector.matchExpressions[2].operator: "in" is invalid: must be In, NotIn, Exists or DoesNotExist`,
				`spec.shardSelector.matchExpressions[3].operator: "" is invalid: must be In, NotIn, Exists or DoesNotExist`,
			},
		},
		"Labels": {
			"names and values that no label can have",
			func(s *v1alpha1.SentinelConfigSpec) {
				s.ShardSelector = &v1alpha1.ShardSelector{
					MatchLabels:      map[string]string{"a b": "c", "d": "e f"},
					MatchExpressions: []v1alpha1.LabelExpression{{Key: "g", Operator: "In"}, {Key: "h", Operator: "Exists", Values: []string{"i"}}},
				}
			},
			[]string{
				`spec.shardSelector.matchLabels: select by label "a b": `,
				`spec.shardSelector.matchLabels: select by label "d": `,
				`spec.shardSelector.matchExpressions[0]: select by label "g": `,
				`spec.shardSelector.matchExpressions[1]: select by label "h": `,
			},
		},
		"URL": {
			"no URL of an API",
			func(s *v1alpha1.SentinelConfigSpec) { s.HyperfleetAPI.URL = "api:8080" },
			[]string{`spec.hyperfleetAPI.url: must be a URL such as http://hyperfleet-api:8080`},
		},
		"URLPassword": {
			"a password is refused and not shown",
			func(s *v1alpha1.SentinelConfigSpec) { s.HyperfleetAPI.URL = "http://me:canary@api:8080" },
			[]string{`spec.hyperfleetAPI.url: must not contain a user name or password; put a token in a Secret and reference it in spec.hyperfleetAPI.tokenSecretRef`},
		},
		"Flavour": {
			"no API that we know",
			func(s *v1alpha1.SentinelConfigSpec) { s.HyperfleetAPI.Flavour = "sweet" },
			[]string{`spec.hyperfleetAPI.flavour: "sweet" is invalid: must be one of auto, fleetloop, hyperfleet`},
		},
		"Project": {
			"Pub/Sub without a project",
			func(s *v1alpha1.SentinelConfigSpec) {
				s.Broker = v1alpha1.Broker{Type: v1alpha1.BrokerPubSub, Topic: "t"}
			},
			[]string{`spec.broker.projectID: is required for type gcp-pubsub`},
		},
		"Address": {
			"RabbitMQ without an address",
			func(s *v1alpha1.SentinelConfigSpec) { s.Broker.URL = "" },
			[]string{`spec.broker.url: is required for type rabbitmq, unless the Secret of credentialsSecretRef contains it`},
		},
		"AddressOfSomethingElse": {
			"a password is not shown",
			func(s *v1alpha1.SentinelConfigSpec) { s.Broker.URL = "http://me:canary@rabbitmq" },
			[]string{`spec.broker.url: must be amqp://user:password@host:5672/vhost or amqps://… (the value is not shown)`},
		},
		"AddressThatIsNone": {
			"nor one in a text that can not be read",
			func(s *v1alpha1.SentinelConfigSpec) {
				s.Broker = v1alpha1.Broker{Type: v1alpha1.BrokerNATS, Topic: "t", URL: "nats://me:canary%zz@x"} //nolint:gosec // nobody has this password
			},
			[]string{`spec.broker.url: must be nats://user:password@host:4222, or a comma-separated list (the value is not shown)`},
		},
		"References": {
			"references that name nothing",
			func(s *v1alpha1.SentinelConfigSpec) {
				s.Broker.CredentialsSecretRef = &v1alpha1.SecretRef{}
				s.HyperfleetAPI.TokenSecretRef = &v1alpha1.SecretKeyRef{}
				s.HyperfleetAPI.HeadersSecretRef = &v1alpha1.SecretRef{}
			},
			[]string{
				`spec.broker.credentialsSecretRef.name: is required`,
				`spec.hyperfleetAPI.headersSecretRef.name: is required`,
				`spec.hyperfleetAPI.tokenSecretRef.name: is required`,
			},
		},
		"MessageData": {
			"values that make no sense, by their paths",
			func(s *v1alpha1.SentinelConfigSpec) {
				s.MessageData = data(`{"list":[1],"none":null,"deep":{"list":[{"a":{}}],"ok":".id"}}`)
			},
			[]string{
				`spec.messageData.list: must be a string or a mapping`,
				`spec.messageData.none: must be a string or a mapping`,
				`spec.messageData.deep.list: must be a string or a mapping`,
			},
		},
		"MessageDataThatDoesNotCompile": {
			"mistakes of templates and expressions",
			func(s *v1alpha1.SentinelConfigSpec) { s.MessageData = data(`{"a":{"b":"{{.x"},"c":"cel:1 +"}`) },
			[]string{`spec.messageData.a.b: `, `spec.messageData.c: expression after "cel:": `},
		},
		"MessageDataOfAnotherType": {
			"no mapping at all",
			func(s *v1alpha1.SentinelConfigSpec) { s.MessageData = data(`"text"`) },
			[]string{`spec.messageData: must be a mapping`},
		},
		"MessageDataThatIsNoJSON": {
			"which only a program can make",
			func(s *v1alpha1.SentinelConfigSpec) { s.MessageData = data(`{"a":`) },
			[]string{`spec.messageData: is not valid JSON: `},
		},
		"MessageDataTwice": {
			"two documents",
			func(s *v1alpha1.SentinelConfigSpec) { s.MessageData = data(`{} {}`) },
			[]string{`spec.messageData: is not valid JSON: `},
		},
		"MessageDataTooDeep": {
			"which would take a stack apart",
			func(s *v1alpha1.SentinelConfigSpec) {
				s.MessageData = data(strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5000))
			},
			[]string{`spec.messageData: nesting is deeper than 32 levels`},
		},
		"Profile": {
			"a profile that there is not",
			func(s *v1alpha1.SentinelConfigSpec) { s.Decision = &v1alpha1.Decision{Profile: "coin-toss"} },
			[]string{`spec.decision.profile: "coin-toss" is invalid: must be one of transition-age, generation-then-age, expression`},
		},
		"NoResult": {
			"an expression without its result",
			func(s *v1alpha1.SentinelConfigSpec) { s.Decision = &v1alpha1.Decision{Profile: "expression"} },
			[]string{`spec.decision.result: is required with the profile "expression"`},
		},
		"ResultOfAnotherProfile": {
			"it would have no effect",
			func(s *v1alpha1.SentinelConfigSpec) { s.Decision = &v1alpha1.Decision{Result: "true"} },
			[]string{`spec.decision.profile: params and result require the profile "expression"`},
		},
		"Expression": {
			"an expression that does not compile",
			func(s *v1alpha1.SentinelConfigSpec) {
				s.Decision = &v1alpha1.Decision{Profile: "expression", Result: "resource.x +"}
			},
			[]string{`spec.decision: compile result: `},
		},
		"Param": {
			"a param without name and expression",
			func(s *v1alpha1.SentinelConfigSpec) {
				s.Decision = &v1alpha1.Decision{Profile: "expression", Result: "true", Params: []v1alpha1.Param{{}}}
			},
			[]string{`spec.decision.params[0].name: is required`, `spec.decision.params[0].expr: is required`},
		},
		"Mode": {
			"a mode that there is not",
			func(s *v1alpha1.SentinelConfigSpec) { s.Source = &v1alpha1.Source{Mode: "psychic"} },
			[]string{`spec.source.mode: "psychic" is invalid: must be one of auto, sweep, etag, cursor, watch`},
		},
		"ModeOfExpression": {
			"an expression may change with the time alone",
			func(s *v1alpha1.SentinelConfigSpec) {
				s.Decision = &v1alpha1.Decision{Profile: "expression", Result: "true"}
				s.Source = &v1alpha1.Source{Mode: "cursor"}
			},
			[]string{`spec.source.mode: "cursor" is invalid with the profile "expression"`},
		},
		"ShardingMode": {
			"a mode that there is not",
			func(s *v1alpha1.SentinelConfigSpec) { s.Sharding = &v1alpha1.Sharding{Mode: "by-hand"} },
			[]string{`spec.sharding.mode: "by-hand" is invalid: must be one of static, auto`},
		},
		"NoCount": {
			"a part of what",
			func(s *v1alpha1.SentinelConfigSpec) { s.Sharding = &v1alpha1.Sharding{Index: new(int32(0))} },
			[]string{`spec.sharding: count and index are required for the mode static`},
		},
		"Index": {
			"a part that there is not",
			func(s *v1alpha1.SentinelConfigSpec) {
				s.Sharding = &v1alpha1.Sharding{Count: new(int32(2)), Index: new(int32(2))}
			},
			[]string{`spec.sharding.index: 2 is invalid: must be between 0 and 1`},
		},
		"Count": {
			"no parts",
			func(s *v1alpha1.SentinelConfigSpec) {
				s.Sharding = &v1alpha1.Sharding{Count: new(int32(0)), Index: new(int32(0))}
			},
			[]string{`spec.sharding.count: 0 is invalid: must be between 1 and 1024`},
		},
		"AutoWithCount": {
			"the replicas count themselves",
			func(s *v1alpha1.SentinelConfigSpec) {
				s.Sharding = &v1alpha1.Sharding{Mode: v1alpha1.ShardingAuto, Count: new(int32(2))}
			},
			[]string{`spec.sharding: count and index must not be set for the mode auto`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := newValid()
			if _, err := sentinelconfig.TranslateSpec(spec); err != nil {
				t.Fatal(err)
			}
			tc.spoil(spec)
			got, err := sentinelconfig.TranslateSpec(spec)
			if err == nil {
				t.Fatalf("%s: accepted", tc.reason)
			}
			lines := strings.Split(err.Error(), "\n")
			var heads []string
			for i, line := range lines {
				if i < len(tc.want) && strings.HasPrefix(line, tc.want[i]) {
					line = tc.want[i]
				}
				if strings.HasPrefix(line, "spec.") {
					heads = append(heads, line) // a compiler's message has more lines
				}
			}
			if diff := cmp.Diff(tc.want, heads); diff != "" {
				t.Errorf("%s: -want +got\n%s\n%v", tc.reason, diff, err)
			}
			if strings.Contains(err.Error(), "canary") {
				t.Errorf("%s: a secret is shown: %v", tc.reason, err)
			}
			if got.Sentinel.ResourceType != "" {
				t.Errorf("%s: settings come with the error", tc.reason)
			}
		})
	}
}

func TestLocate(t *testing.T) {
	t.Parallel()
	spoiled := sentinel.Config{
		ResourceType: "clusters", Jitter: 2, LabelSelector: "a in", Decision: sentinel.Decision{Result: "true"},
		MessageData: settings.OrderedMap{{Key: "a", Map: settings.OrderedMap{{Key: "b", Value: "cel:1 +"}}}},
		Source:      sentinel.Sources{Mode: "psychic"},
	}
	_, err := sentinel.New(spoiled, sentinel.Deps{API: nowhere{}, Publisher: nowhere{}})
	err = sentinelconfig.TranslateKeyErrors(err)
	for _, want := range []string{
		"\nspec.source.mode: ", "\nspec.shardSelector: ", "\nspec.decision.profile: ", "\nspec.messageData.a.b: ",
		"\njitter: ", // which no field says
	} {
		if !strings.Contains("\n"+err.Error(), want) {
			t.Errorf("no %q in %v", want[1:], err)
		}
	}
	if err := sentinelconfig.TranslateKeyErrors(nil); err != nil {
		t.Errorf("of nothing: %v", err)
	}
}
