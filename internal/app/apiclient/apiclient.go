// Package apiclient builds the client of the fleet API from settings.
package apiclient

import (
	"errors"
	"net/http"
	"time"

	"github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/settings"
	"github.com/fleetloop/fleetloop/internal/telemetry"
)

// Config holds the settings of a client. At most one of Token and TokenFile is set; neither means
// that requests are anonymous.
type Config struct {
	Endpoint  string
	Token     settings.Secret
	TokenFile string // read again when it changes
	CAFile    string
	TLS       TLSConfig
	Header    http.Header
	Timeout   time.Duration
	UserAgent string

	// Wrap wraps or replaces the HTTP transport. It may be nil.
	Wrap func(http.RoundTripper) http.RoundTripper
}

// TLSConfig is what people, not components, set for TLS.
type TLSConfig struct {
	ClientCertFile, ClientKeyFile string
	InsecureSkipVerify            bool
}

// New returns a client that continues traces. It does not retry: the components have their own
// backoff, and a person sees an error at once.
func New(cfg Config) (*client.Client, error) {
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
		Endpoint: cfg.Endpoint, Token: token, CAFile: cfg.CAFile, Header: cfg.Header,
		ClientCertFile: cfg.TLS.ClientCertFile, ClientKeyFile: cfg.TLS.ClientKeyFile, InsecureSkipVerify: cfg.TLS.InsecureSkipVerify,
		Timeout: cfg.Timeout, UserAgent: cfg.UserAgent, MaxAttempts: 1,
		WrapTransport: func(rt http.RoundTripper) http.RoundTripper {
			if cfg.Wrap != nil {
				rt = cfg.Wrap(rt)
			}
			return telemetry.PropagateTraces(rt)
		},
	})
}
