package sentinelconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// The keys of a Secret that are used.
const (
	keyURL      = "url"
	keyUsername = "username"
	keyPassword = "password"
	keyToken    = "token"
	keyJSON     = "key.json"

	defaultTokenKey = "token"
)

// SecretNames returns the names of the required Secrets, without duplicates, sorted.
func (s Settings) SecretNames() []string {
	names := []string{s.credentials, s.headers, s.token.Name}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == "" })
}

// WithSecrets returns the settings with the data of Secrets. secrets is the data of each Secret by
// the Secret's name, without those that do not exist. Errors name the field that refers to the
// Secret and never show its data.
func (s Settings) WithSecrets(secrets map[string]map[string][]byte) (Settings, error) {
	t := &translation{}
	if s.token.Name != "" {
		const field = "spec.hyperfleetAPI.tokenSecretRef"
		data, ok := t.requireSecret(field, secrets, s.token.Name)
		token := trimmedValue(data, s.token.Key)
		if ok && !isValidHeaderValue(token) {
			t.addFieldErrorf(field, "Secret %q has no token in key %q", s.token.Name, s.token.Key)
		}
		s.Sentinel.HyperfleetAPI.Token = settings.Secret(token)
	}
	if s.headers != "" {
		s.Sentinel.HyperfleetAPI.Headers = t.buildHeaders(secrets, s.headers)
	}
	if s.credentials != "" {
		if data, ok := t.requireSecret(credentialsField, secrets, s.credentials); ok {
			s.Broker = t.applyCredentials(s.Broker, s.credentials, data)
		}
	}
	if err := errors.Join(t.errs...); err != nil {
		return Settings{}, err
	}
	return s, nil
}

// buildHeaders returns every value of a Secret as a header.
func (t *translation) buildHeaders(
	secrets map[string]map[string][]byte, secretName string,
) map[string]settings.Secret {
	const field = "spec.hyperfleetAPI.headersSecretRef"
	data, _ := t.requireSecret(field, secrets, secretName)
	headers := make(map[string]settings.Secret, len(data))
	for _, key := range slices.Sorted(maps.Keys(data)) {
		value := trimmedValue(data, key)
		if !isValidHeaderValue(value) {
			t.addFieldErrorf(field, "Secret %q: the value of key %q is not a valid header value", secretName, key)
		}
		headers[key] = settings.Secret(value)
	}
	return headers
}

// isValidHeaderValue reports whether a text can be sent in a header. All keys of Secrets are valid
// header names.
func isValidHeaderValue(value string) bool {
	isControl := func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }
	return value != "" && !strings.ContainsFunc(value, isControl)
}

const credentialsField = "spec.broker.credentialsSecretRef" //nolint:gosec // the path of a field

// requireSecret returns the data of a Secret. A missing Secret is an error of the field that refers to
// it.
func (t *translation) requireSecret(
	field string, secrets map[string]map[string][]byte, name string,
) (data map[string][]byte, found bool) {
	data, found = secrets[name]
	if !found {
		t.addFieldErrorf(field, "Secret %q not found in the namespace; create it, or remove the reference", name)
	}
	return data, found
}

// trimmedValue returns a value without the trailing newline that editors add.
func trimmedValue(data map[string][]byte, key string) string {
	return strings.TrimRight(string(data[key]), "\r\n")
}

// applyCredentials returns the broker with the credentials of a Secret: the key of Pub/Sub, or the URL
// with the user.
func (t *translation) applyCredentials(b Broker, secretName string, data map[string][]byte) Broker {
	if b.Type == v1alpha1.BrokerPubSub {
		key := trimmedValue(data, keyJSON)
		if !json.Valid([]byte(key)) {
			t.addFieldErrorf(credentialsField, "Secret %q has no valid JSON in key %q", secretName, keyJSON)
		}
		b.KeyJSON = settings.Secret(key)
		return b
	}

	// The URL of the Secret replaces that of the spec.
	secretURL := trimmedValue(data, keyURL)
	if secretURL != "" {
		field := fmt.Sprintf("%s: key %q of Secret %q", credentialsField, keyURL, secretName)
		t.validateBrokerAddress(field, b.Type, secretURL)
		b.URL = settings.Secret(secretURL)
	}
	if b.URL == "" {
		t.addFieldErrorf(credentialsField, "Secret %q has no key %q, and spec.broker.url is not set", secretName, keyURL)
		return b
	}
	user := buildUserinfo(b.Type, data)
	if user == nil {
		if secretURL == "" {
			t.addFieldErrorf(credentialsField,
				"Secret %q must have the key %s, or the keys %s and %s", secretName, keyURL, keyUsername, keyPassword)
		}
		return b
	}

	// The user of the Secret replaces that of the URL.
	if _, ok := user.Password(); !ok && trimmedValue(data, keyUsername) != "" {
		t.addFieldErrorf(credentialsField, "Secret %q has the key %s but not %s", secretName, keyUsername, keyPassword)
	}
	servers, ok := parseBrokerURLs(b.Type, b.URL.Reveal())
	if !ok {
		return b // already reported
	}
	texts := make([]string, len(servers))
	for i, u := range servers {
		u.User = user
		texts[i] = u.String()
	}
	b.URL = settings.Secret(strings.Join(texts, ","))
	return b
}

// buildUserinfo returns the user in the Secret; nil if it has none.
func buildUserinfo(brokerType v1alpha1.BrokerType, data map[string][]byte) *url.Userinfo {
	user, password := trimmedValue(data, keyUsername), trimmedValue(data, keyPassword)
	token := trimmedValue(data, keyToken)
	switch {
	case user != "" && password == "":
		return url.User(user)
	case user != "":
		return url.UserPassword(user, password)
	case token != "" && brokerType == v1alpha1.BrokerNATS:
		return url.User(token)
	}
	return nil
}
