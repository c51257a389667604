package sentinelconfig_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/sentinel/sentinelconfig"
)

func TestSecretNames(t *testing.T) {
	t.Parallel()
	spec := newValid()
	spec.Broker.CredentialsSecretRef = &v1alpha1.SecretRef{Name: "z"}
	spec.HyperfleetAPI.HeadersSecretRef = &v1alpha1.SecretRef{Name: "a"}
	spec.HyperfleetAPI.TokenSecretRef = &v1alpha1.SecretKeyRef{Name: "z", Key: "k"}
	s, err := sentinelconfig.TranslateSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a", "z"}, s.SecretNames()); diff != "" {
		t.Errorf("each once and sorted: -want +got\n%s", diff)
	}
	if s, err = sentinelconfig.TranslateSpec(newValid()); err != nil || len(s.SecretNames()) > 0 {
		t.Errorf("none wanted, got %q, %v", s.SecretNames(), err)
	}
}

func TestCredentials(t *testing.T) {
	t.Parallel()
	rabbit := func(url string) v1alpha1.Broker {
		return v1alpha1.Broker{Type: v1alpha1.BrokerRabbitMQ, Topic: "t", URL: url}
	}
	nats := func(url string) v1alpha1.Broker {
		return v1alpha1.Broker{Type: v1alpha1.BrokerNATS, Topic: "t", URL: url}
	}
	pubsub := v1alpha1.Broker{Type: v1alpha1.BrokerPubSub, Topic: "t", ProjectID: "p"}
	for name, tc := range map[string]struct {
		reason string
		broker v1alpha1.Broker
		data   map[string]string // nil: there is no such Secret
		want   string            // the url, or the key
		err    string            // how the error begins
	}{
		"URL":          {"an address in the Secret alone", rabbit(""), map[string]string{"url": "amqp://me:pw@host/v\n"}, "amqp://me:pw@host/v", ""},    //nolint:gosec // nobody has this password
		"URLWins":      {"over that in the spec", rabbit("amqp://old:old@old"), map[string]string{"url": "amqp://me:pw@host"}, "amqp://me:pw@host", ""}, //nolint:gosec // nobody has this password
		"User":         {"beside the spec's address, whose own are replaced", rabbit("amqp://old:old@host:5672/v%2fw"), map[string]string{"username": "me", "password": "p@:/w"}, "amqp://me:p%40%3A%2Fw@host:5672/v%2fw", ""},
		"UserAndURL":   {"both in the Secret", rabbit(""), map[string]string{"url": "amqps://host", "username": "me", "password": "pw"}, "amqps://me:pw@host", ""},
		"NATSUser":     {"at each of the servers", nats("nats://a, b:4222"), map[string]string{"username": "me", "password": "pw"}, "nats://me:pw@a,nats://me:pw@b:4222", ""},
		"NATSToken":    {"a token", nats("nats://a"), map[string]string{"token": "canary"}, "nats://canary@a", ""},
		"Key":          {"a key of Pub/Sub", pubsub, map[string]string{"key.json": `{"type":"service_account"}`}, `{"type":"service_account"}`, ""},
		"NoSecret":     {"it does not exist", rabbit(""), nil, "", `spec.broker.credentialsSecretRef: Secret "s" not found`},
		"Empty":        {"nothing in it", rabbit("amqp://host"), map[string]string{"other": "canary"}, "", `spec.broker.credentialsSecretRef: Secret "s" must have the key url, or the keys username and password`},
		"NoURL":        {"no address anywhere", rabbit(""), map[string]string{"username": "me", "password": "canary"}, "", `spec.broker.credentialsSecretRef: Secret "s" has no key "url"`},
		"NoPassword":   {"half of it", rabbit("amqp://host"), map[string]string{"username": "canary"}, "", `spec.broker.credentialsSecretRef: Secret "s" has the key username but not password`},
		"BadURL":       {"no address of RabbitMQ", rabbit(""), map[string]string{"url": "http://canary"}, "", `spec.broker.credentialsSecretRef: key "url" of Secret "s": must be amqp://`},
		"NoKey":        {"no key of Pub/Sub", pubsub, map[string]string{"key": "canary"}, "", `spec.broker.credentialsSecretRef: Secret "s" has no valid JSON in key "key.json"`},
		"KeyIsNoJSON":  {"a key that is cut off", pubsub, map[string]string{"key.json": `{"canary`}, "", `spec.broker.credentialsSecretRef: Secret "s" has no valid JSON in key "key.json"`},
		"NATSNothing":  {"nothing in it", nats("nats://a"), map[string]string{}, "", `spec.broker.credentialsSecretRef: Secret "s" must have the key url, or the keys username and password`},
		"RabbitTokens": {"RabbitMQ knows no tokens", rabbit("amqp://a"), map[string]string{"token": "canary"}, "", `spec.broker.credentialsSecretRef: Secret "s" must have the key url, or the keys username and password`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := newValid()
			spec.Broker = tc.broker
			spec.Broker.CredentialsSecretRef = &v1alpha1.SecretRef{Name: "s"}
			got, err := withSecrets(t, spec, tc.data)
			if tc.err != "" {
				if err == nil || !strings.HasPrefix(err.Error(), tc.err) || strings.Contains(err.Error(), "canary") {
					t.Errorf("%s: got error %v, want %s", tc.reason, err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if have := got.Broker.URL.Reveal() + got.Broker.KeyJSON.Reveal(); have != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, have, tc.want)
			}
		})
	}
}

func TestTokenAndHeaders(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason  string
		key     string
		data    map[string]string
		token   string
		headers map[string]string
		err     string
	}{
		"Token":       {"under its key by default, without the newline", "", map[string]string{"token": "secret\n", "X-Tenant": "blue"}, "secret", map[string]string{"token": "secret", "X-Tenant": "blue"}, ""},
		"Key":         {"under a key of its own", "k", map[string]string{"k": "secret"}, "secret", map[string]string{"k": "secret"}, ""},
		"NoKey":       {"the key is not there", "k", map[string]string{"token": "canary"}, "", nil, `spec.hyperfleetAPI.tokenSecretRef: Secret "s" has no token in key "k"`},
		"NoToken":     {"what can not be sent", "", map[string]string{"token": "a\nb"}, "", nil, `spec.hyperfleetAPI.tokenSecretRef: Secret "s" has no token in key "token"`},
		"NoHeader":    {"what can not be sent", "", map[string]string{"token": "a", "X": "canary\x00"}, "", nil, `spec.hyperfleetAPI.headersSecretRef: Secret "s": the value of key "X" is not a valid header value`},
		"NoSecret":    {"it does not exist", "", nil, "", nil, `spec.hyperfleetAPI.tokenSecretRef: Secret "s" not found in the namespace; create it, or remove the reference`},
		"EmptyHeader": {"a header without a value", "", map[string]string{"token": "a", "X": ""}, "", nil, `spec.hyperfleetAPI.headersSecretRef: Secret "s": the value of key "X"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := newValid()
			spec.HyperfleetAPI.TokenSecretRef = &v1alpha1.SecretKeyRef{Name: "s", Key: tc.key}
			spec.HyperfleetAPI.HeadersSecretRef = &v1alpha1.SecretRef{Name: "s"}
			got, err := withSecrets(t, spec, tc.data)
			if tc.err != "" {
				if err == nil || !strings.HasPrefix(err.Error(), tc.err) || strings.Contains(err.Error(), "canary") {
					t.Errorf("%s: got error %v, want %s", tc.reason, err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			headers := map[string]string{}
			for k, v := range got.Sentinel.HyperfleetAPI.Headers {
				headers[k] = v.Reveal()
			}
			if diff := cmp.Diff(tc.headers, headers); diff != "" || got.Sentinel.HyperfleetAPI.Token.Reveal() != tc.token {
				t.Errorf("%s: token %q, headers -want +got\n%s", tc.reason, got.Sentinel.HyperfleetAPI.Token.Reveal(), diff)
			}
		})
	}
}

// withSecrets translates a spec and adds the data of one Secret, named s.
func withSecrets(t *testing.T, spec *v1alpha1.SentinelConfigSpec, data map[string]string) (sentinelconfig.Settings, error) {
	t.Helper()
	s, err := sentinelconfig.TranslateSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	secrets := map[string]map[string][]byte{}
	if data != nil {
		secrets["s"] = map[string][]byte{}
		for k, v := range data {
			secrets["s"][k] = []byte(v)
		}
	}
	got, err := s.WithSecrets(secrets)
	if err != nil && got.Sentinel.ResourceType != "" {
		t.Error("settings come with the error")
	}
	return got, err
}

// TestNothingIsShown: settings can be logged whole.
func TestNothingIsShown(t *testing.T) {
	t.Parallel()
	s, err := sentinelconfig.TranslateSpec(newValid())
	if err != nil {
		t.Fatal(err)
	}
	s.Broker.KeyJSON = s.Broker.URL
	if text := fmt.Sprintf("%v %+v %#v", s, s, s); strings.Contains(text, "guest") {
		t.Errorf("shown: %s", text)
	}
}
