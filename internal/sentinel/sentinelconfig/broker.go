package sentinelconfig

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// translateBroker takes the fields that the type of broker uses.
func (t *translation) translateBroker(b *v1alpha1.Broker) Broker {
	out := Broker{Type: b.Type, Topic: b.Topic}
	t.requireText("spec.broker.topic", b.Topic)
	requireOneOf(t, "spec.broker.type", b.Type, v1alpha1.BrokerTypes()...)
	switch {
	case b.Type == v1alpha1.BrokerPubSub:
		out.ProjectID = b.ProjectID
		if b.ProjectID == "" {
			t.addFieldErrorf("spec.broker.projectID", "is required for type %s", b.Type)
		}
	case slices.Contains(v1alpha1.BrokerTypes(), b.Type):
		out.URL = settings.Secret(b.URL)
		if b.Type == v1alpha1.BrokerRabbitMQ {
			out.Exchange = cmp.Or(b.Exchange, b.Topic)
		}
		if b.URL == "" && b.CredentialsSecretRef == nil {
			t.addFieldErrorf("spec.broker.url",
				"is required for type %s, unless the Secret of credentialsSecretRef contains it", b.Type)
		} else if b.URL != "" {
			t.validateBrokerAddress("spec.broker.url", b.Type, b.URL)
		}
	}
	return out
}

// validateBrokerAddress checks the address of a broker. It never shows the address, because it may
// contain a password.
func (t *translation) validateBrokerAddress(field string, brokerType v1alpha1.BrokerType, address string) {
	servers, ok := parseBrokerURLs(brokerType, address)
	if ok && !slices.ContainsFunc(servers, func(u *url.URL) bool { return !isBrokerURL(brokerType, u) }) {
		return
	}
	if brokerType == v1alpha1.BrokerRabbitMQ {
		t.addFieldErrorf(field, "must be amqp://user:password@host:5672/vhost or amqps://… (the value is not shown)")
		return
	}
	if brokerType == v1alpha1.BrokerNATS {
		t.addFieldErrorf(field,
			"must be nats://user:password@host:4222, or a comma-separated list (the value is not shown)")
		return
	}
	t.addFieldErrorf(field, "must be a URL with a host (the value is not shown)")
}

// isBrokerURL reports whether a URL can be that of a broker.
func isBrokerURL(brokerType v1alpha1.BrokerType, u *url.URL) bool {
	if u.Hostname() == "" {
		return false
	}
	return brokerType != v1alpha1.BrokerRabbitMQ || u.Scheme == "amqp" || u.Scheme == "amqps"
}

// parseBrokerURLs parses the address of a broker; NATS may have several.
func parseBrokerURLs(brokerType v1alpha1.BrokerType, address string) (servers []*url.URL, ok bool) {
	texts := []string{address}
	if brokerType == v1alpha1.BrokerNATS {
		texts = strings.Split(address, ",")
	}
	for _, one := range texts {
		one = strings.TrimSpace(one)
		if brokerType == v1alpha1.BrokerNATS && !strings.Contains(one, "://") {
			one = "nats://" + one
		}
		u, err := url.Parse(one)
		if err != nil {
			return nil, false
		}
		servers = append(servers, u)
	}
	return servers, true
}
