package sentinelconfig_test

import (
	"context"
	"encoding/json"
	"io"
	"net/url"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	fleetv1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
	"github.com/fleetloop/fleetloop/internal/sentinel"
	"github.com/fleetloop/fleetloop/internal/sentinel/sentinelconfig"
)

// FuzzTranslate checks that no spec causes a panic, that every error begins with the path of a
// field, and that the engine accepts every accepted spec.
func FuzzTranslate(f *testing.F) {
	valid, err := json.Marshal(newValid())
	if err != nil {
		f.Fatal(err)
	}
	add := func(fields string) {
		f.Add(strings.TrimSuffix(string(valid), "}")+fields+"}", `{"a":".id"}`, "amqp://host", "key")
	}
	add("")
	add(`,"shardSelector":{"matchLabels":{"a":"b"},"matchExpressions":[{"key":"a","operator":"In","values":["b",""]},{"operator":"Foo"}]}`)
	add(`,"decision":{"profile":"expression","params":[{"name":"a","expr":"1"}],"result":"a > 0"},"source":{"mode":"cursor","fullSweepInterval":"1h"}`)
	add(`,"sharding":{"count":-1,"index":-1},"backoffReady":"-1ns","pollInterval":"1e9h"`)
	add(`,"broker":{"type":"nats","topic":"t","url":"nats://a,b,,%","credentialsSecretRef":{"name":"s"}}`)
	add(`,"broker":{"type":"gcp-pubsub","topic":"t","projectID":"p","credentialsSecretRef":{"name":"s"}},"hyperfleetAPI":{"url":"http://[::1","tokenSecretRef":{"name":"s"},"headersSecretRef":{"name":"s"}}`)
	f.Fuzz(func(t *testing.T, text, data, value, key string) {
		var spec v1alpha1.SentinelConfigSpec
		if json.Unmarshal([]byte(text), &spec) != nil {
			return
		}
		spec.MessageData = &apiextensionsv1.JSON{Raw: []byte(data)}
		s, err := sentinelconfig.TranslateSpec(&spec)
		wantFields(t, err)
		if err != nil {
			return
		}
		if _, err := sentinel.New(s.Sentinel, sentinel.Deps{API: nowhere{}, Publisher: nowhere{}}); err != nil {
			t.Errorf("the engine refuses what was accepted: %v", err)
		}
		secrets := map[string]map[string][]byte{}
		for _, name := range s.SecretNames() {
			secrets[name] = map[string][]byte{key: []byte(value), "url": []byte(value), "username": []byte(key), "password": []byte(value), "key.json": []byte(value), "token": []byte(value)}
		}
		_, err = s.WithSecrets(secrets)
		wantFields(t, err)
	})
}

// wantFields checks that each part of an error, if there is one, names the field.
func wantFields(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	switch joined, ok := err.(interface{ Unwrap() []error }); {
	case ok:
		for _, e := range joined.Unwrap() {
			wantFields(t, e)
		}
	case !strings.HasPrefix(err.Error(), "spec."):
		t.Errorf("which field is it? %v", err)
	}
}

// nowhere is an API and a broker that are never used.
type nowhere struct{}

func (nowhere) ListPage(context.Context, string, url.Values, []byte) ([]byte, error) {
	return nil, nil
}

func (nowhere) ListPageIf(context.Context, string, url.Values, string, []byte) ([]byte, io.ReadCloser, string, error) {
	return nil, nil, "", nil
}

func (nowhere) Watch(context.Context, string, url.Values, func(fleetv1.WatchEvent) error) error {
	return nil
}

func (nowhere) Publish(context.Context, *cloudevent.Event) error { return nil }

func (nowhere) InFlight() int { return 0 }

func (nowhere) Ready() error { return nil }
