package sentinelapp_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const plain = `resource_type: clusters
hyperfleet_api:
  endpoint: http://127.0.0.1:1
`

// TestValidateRefuses holds that a bad file is refused with its place and what
// to do, by validate and by a start alike, and that nothing is sent.
func TestValidateRefuses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		text   string   // after it the place of "endpoint: TRAP" is the trap
		want   []string // in the error
	}{
		"UnknownKey": {
			"with place and what was probably meant",
			"resource_type: clusters\npoll_intervall: 5s\nhyperfleet_api: {endpoint: TRAP}\n",
			[]string{"FILE:2:1:", `"poll_intervall"`, `did you mean "poll_interval"`},
		},
		"UnknownNestedKey": {
			"with its path",
			"resource_type: clusters\nhyperfleet_api:\n  endpoint: TRAP\n  timout: 5s\n",
			[]string{"FILE:4:3:", "timout", `"hyperfleet_api.timeout"`},
		},
		"BrokerInTheFile": {
			"the broker's settings are apart",
			"resource_type: clusters\nhyperfleet_api: {endpoint: TRAP}\nbroker: {type: rabbitmq}\n",
			[]string{"FILE:3:1:", `"broker"`},
		},
		"BadDuration": {
			"a duration has a unit",
			"resource_type: clusters\nmax_age_ready: abc\nhyperfleet_api: {endpoint: TRAP}\n",
			[]string{"FILE:2:16:", `"max_age_ready"`, `"abc"`},
		},
		"DurationWithoutUnit": {
			"5 what?",
			"resource_type: clusters\npoll_interval: 5\nhyperfleet_api: {endpoint: TRAP}\n",
			[]string{"FILE:2:16:", `"poll_interval"`},
		},
		"ZeroInterval": {
			"it would poll without end",
			"resource_type: clusters\npoll_interval: 0s\nhyperfleet_api: {endpoint: TRAP}\n",
			[]string{"FILE:2:16:", `"poll_interval"`},
		},
		"StopsTooSoon": {
			"the process would fail its own orderly end",
			"resource_type: clusters\nstop_timeout: 5s\nshutdown_timeout: 8s\nhyperfleet_api: {endpoint: TRAP}\n",
			[]string{"FILE:2:15:", `"stop_timeout"`, "longer than shutdown_timeout", "8s"},
		},
		"NegativeAge": {
			"no such time",
			"resource_type: clusters\nmax_age_not_ready: -10s\nhyperfleet_api: {endpoint: TRAP}\n",
			[]string{"FILE:2:20:", `"max_age_not_ready"`},
		},
		"ZeroTimeout": {
			"no request could succeed",
			"resource_type: clusters\nhyperfleet_api:\n  endpoint: TRAP\n  timeout: 0s\n",
			[]string{"FILE:4:12:", `"hyperfleet_api.timeout"`},
		},
		"BadTemplate": {
			"names the key and the column",
			"resource_type: clusters\nhyperfleet_api: {endpoint: TRAP}\nmessage_data:\n  id: .id\n  display_name: '{{if .id}'\n",
			[]string{"FILE:5:17:", `"message_data.display_name"`, "line 1, column "},
		},
		"TwoBadTemplates": {
			"all at once",
			"resource_type: clusters\nhyperfleet_api: {endpoint: TRAP}\nmessage_data:\n  a: '{{.id'\n  b: '{{nosuch .id}}'\n",
			[]string{"FILE:4:6:", `"message_data.a"`, "FILE:5:6:", `"message_data.b"`, "nosuch"},
		},
		"BadExpression": {
			"a CEL value is compiled, too",
			"resource_type: clusters\nhyperfleet_api: {endpoint: TRAP}\nmessage_data:\n  n: 'cel:resource.generation +'\n",
			[]string{"FILE:4:6:", `"message_data.n"`},
		},
		"BadResourceType": {
			"with the types there are",
			"resource_type: widgets\nhyperfleet_api: {endpoint: TRAP}\n",
			[]string{"FILE:1:16:", `"resource_type"`, "widgets", "clusters", "nodepools", "manifests", "workloads"},
		},
		"NoResourceType": {
			"it is required",
			"hyperfleet_api: {endpoint: TRAP}\n",
			[]string{`"resource_type"`, "required"},
		},
		"NoEndpoint": {
			"it is required",
			"resource_type: clusters\n",
			[]string{`"hyperfleet_api.endpoint"`, "required"},
		},
		"BadEndpoint": {
			"it is a URL",
			"resource_type: clusters\nhyperfleet_api:\n  endpoint: nowhere\n",
			[]string{"FILE:3:13:", `"hyperfleet_api.endpoint"`},
		},
		"BadSelector": {
			"its label is no label",
			"resource_type: clusters\nhyperfleet_api: {endpoint: TRAP}\nresource_selector:\n  - label: 'not a label'\n    value: x\n",
			[]string{"FILE:", "resource_selector", "not a label"},
		},
		"SelectorWithoutValue": {
			"it would ask for the empty value, and watch nothing",
			"resource_type: clusters\nhyperfleet_api: {endpoint: TRAP}\nresource_selector:\n  - label: tier\n    value: a\n  - label: region\n",
			[]string{"FILE:6:5:", `"resource_selector[1].value"`, "required"},
		},
		"BadLabelSelector": {
			"does not parse",
			"resource_type: clusters\nhyperfleet_api: {endpoint: TRAP}\nlabel_selector: 'region in (us-east'\n",
			[]string{"FILE:3:17:", `"label_selector"`},
		},
		"BadProfile": {
			"is none of the profiles",
			"resource_type: clusters\nhyperfleet_api: {endpoint: TRAP}\ndecision: {profile: never}\n",
			[]string{"FILE:3:21:", `"decision.profile"`, "generation-then-age", "transition-age", "expression"},
		},
		"ResultWithoutExpression": {
			"it would not be looked at",
			"resource_type: clusters\nhyperfleet_api: {endpoint: TRAP}\ndecision:\n  result: 'true'\n",
			[]string{`"decision.profile"`, "expression"},
		},
		"TwoSpellings": {
			"they are one setting",
			"resource_type: clusters\nhyperfleet_api: {endpoint: TRAP}\nmax_age_ready: 1h\nbackoffReady: 2h\n",
			[]string{"FILE:4:1:", "backoffReady", "max_age_ready"},
		},
		"TwiceTheSameKey": {
			"which of them?",
			"resource_type: clusters\nresource_type: nodepools\nhyperfleet_api: {endpoint: TRAP}\n",
			[]string{"FILE:2:1:", "resource_type"},
		},
		"Tab": {
			"not YAML",
			"resource_type: clusters\nhyperfleet_api:\n\tendpoint: TRAP\n",
			[]string{"FILE:3"},
		},
		"Empty": {
			"what is required is not there",
			"",
			[]string{`"resource_type"`, `"hyperfleet_api.endpoint"`},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api, asked := newTrap(t)
			broker, connected := newTrap(t)
			file := writeConfig(t, strings.ReplaceAll(tc.text, "TRAP", "http://"+api))
			env := map[string]string{
				"BROKER_TYPE": "rabbitmq", "BROKER_URL": "amqp://guest:guest@" + broker,
				"METRICS_BIND_ADDRESS": "127.0.0.1:0", "HEALTH_PROBE_BIND_ADDRESS": "127.0.0.1:0",
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			validated := runCLI(ctx, t, env, "validate", "--config", file)
			started := runCLI(ctx, t, env, "--config", file)
			if validated.err == nil || started.err == nil {
				t.Fatalf("%s: validate gave %v, start gave %v; want an error of both", tc.reason, validated.err, started.err)
			}
			if diff := cmp.Diff(validated.err.Error(), started.err.Error()); diff != "" {
				t.Errorf("validate and start say different things (-validate +start):\n%s", diff)
			}
			for _, want := range tc.want {
				if want = strings.ReplaceAll(want, "FILE", file); !strings.Contains(validated.err.Error(), want) {
					t.Errorf("%s: the error lacks %q:\n%v", tc.reason, want, validated.err)
				}
			}
			if validated.stdout != "" {
				t.Errorf("stdout has %q although the file is refused", validated.stdout)
			}
			if asked.Load()+connected.Load() != 0 {
				t.Errorf("%d connections to the API and %d to the broker, want none", asked.Load(), connected.Load())
			}
		})
	}
}

func TestValidateConnectsToNothing(t *testing.T) {
	t.Parallel()
	api, asked := newTrap(t)
	broker, connected := newTrap(t)
	file := writeConfig(t, strings.ReplaceAll(plain, "127.0.0.1:1", api))
	for _, env := range []map[string]string{
		nil,
		{"BROKER_TYPE": "rabbitmq", "BROKER_URL": "amqp://guest:guest@" + broker},
		{"BROKER_TYPE": "nats", "BROKER_URL": "nats://" + broker},
		{"BROKER_TYPE": "gcp-pubsub", "BROKER_PROJECT_ID": "p", "PUBSUB_EMULATOR_HOST": broker},
	} {
		if got := runCLI(t.Context(), t, env, "validate", "--config", file); got.err != nil || !strings.HasPrefix(got.stdout, "valid: watches clusters") {
			t.Errorf("%v: got %q and %v", env, got.stdout, got.err)
		}
	}
	if asked.Load()+connected.Load() != 0 {
		t.Errorf("%d connections to the API and %d to the broker, want none", asked.Load(), connected.Load())
	}
}

// TestValidateWarnsOfTexts holds that a number which would be sent as a text is
// named with its place and with the value that keeps its type.
func TestValidateWarnsOfTexts(t *testing.T) {
	t.Parallel()
	file := writeConfig(t, plain+`message_data:
  id: .id
  generation: .generation
  seen: {by: '{{ .status.observed_generation }}'}
  note: 'generation {{.generation}}'
  kept: cel:resource.generation
`)
	got := runCLI(t.Context(), t, nil, "validate", "--config", file)
	if got.err != nil || !strings.HasPrefix(got.stdout, "valid: ") {
		t.Fatalf("got %q and %v, want it valid", got.stdout, got.err)
	}
	const about = " as a string; consumers that expect a number reject it. To keep the type, use: "
	want := "warning: " + file + `:6:15: key "message_data.generation": sends .generation, a number,` + about + "cel:resource.generation\n" +
		"warning: " + file + `:7:14: key "message_data.seen.by": sends .status.observed_generation, a number,` + about + "cel:resource.status.observed_generation\n"
	if diff := cmp.Diff(want, got.stderr); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}

	// A SentinelConfig has fields in place of keys.
	object := writeConfig(t, manifest+"  messageData: {generation: .generation}\n")
	if got := runCLI(t.Context(), t, nil, "validate", "--config", object); got.err != nil || !strings.HasPrefix(got.stderr, "warning: spec.messageData.generation: sends .generation, ") {
		t.Errorf("a SentinelConfig: warnings %q and %v", got.stderr, got.err)
	}
}
