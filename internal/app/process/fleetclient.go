package process

import (
	"errors"
	"net/http"
	"time"

	"github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/settings"
	"github.com/fleetloop/fleetloop/internal/telemetry"
)

// FleetClientConfig holds the settings of a client of the fleet API. At most one of Token and TokenFile is set. Without
// both, requests are anonymous.
type FleetClientConfig struct {
	Endpoint  string
	Token     settings.Secret
	TokenFile string // read again when it changes
	CAFile    string
	TLS       FleetClientTLS
	Header    http.Header
	Timeout   time.Duration
	UserAgent string
	// Impersonate names another principal, for people who may act as others.
	Impersonate client.Impersonation

	// Wrap wraps or replaces the HTTP transport. It may be nil.
	Wrap func(http.RoundTripper) http.RoundTripper
}

// FleetClientTLS is what people, not components, set for TLS.
type FleetClientTLS struct {
	ClientCertFile, ClientKeyFile string
	InsecureSkipVerify            bool
}

// NewFleetClient returns a client of the fleet API that continues traces. It does not retry: the components have their
// own backoff, and a person sees an error at once.
func NewFleetClient(cfg FleetClientConfig) (*client.Client, error) {
	var token client.TokenSource
	switch {
	case cfg.Token != "" && cfg.TokenFile != "":
		return nil, errors.New("both a token and a token file are set; set only one")
	case cfg.Token != "":
		token = client.StaticToken(cfg.Token.Reveal())
	case cfg.TokenFile != "":
		token = client.FileToken(cfg.TokenFile)
	}
	return client.New(client.Config{
		Endpoint:           cfg.Endpoint,
		Token:              token,
		CAFile:             cfg.CAFile,
		Header:             cfg.Header,
		Impersonate:        cfg.Impersonate,
		ClientCertFile:     cfg.TLS.ClientCertFile,
		ClientKeyFile:      cfg.TLS.ClientKeyFile,
		InsecureSkipVerify: cfg.TLS.InsecureSkipVerify,
		Timeout:            cfg.Timeout,
		UserAgent:          cfg.UserAgent,
		MaxAttempts:        1,
		WrapTransport: func(rt http.RoundTripper) http.RoundTripper {
			if cfg.Wrap != nil {
				rt = cfg.Wrap(rt)
			}
			return telemetry.PropagateTraces(rt)
		},
	})
}
