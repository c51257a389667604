package adapter

import (
	"cmp"
	"context"
	"errors"
	"iter"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/settings"
	"github.com/fleetloop/fleetloop/internal/telemetry"
)

// A Fleet is the part of the fleet API that an adapter uses. An unsuccessful response is an error with
// a method StatusCode, which returns the HTTP status.
type Fleet interface {
	Get(ctx context.Context, collection, id string) (v1.Resource, error)
	Statuses(ctx context.Context, collection, id string) ([]v1.AdapterStatus, error)
	// Report sends a report. The API discards a report that is older than the last one; stored is
	// then false.
	Report(ctx context.Context, collection, id string, report v1.Report) (stored bool, err error)
}

// FleetConfig selects the fleet API. An empty field is read from the environment.
type FleetConfig struct {
	// Endpoint is the URL of the API. Empty means HYPERFLEET_API_ENDPOINT.
	Endpoint string

	// TokenFile is a file with the bearer token, which is read again when it changes. Empty means
	// HYPERFLEET_API_TOKEN_FILE or the token in HYPERFLEET_API_TOKEN.
	TokenFile string

	// CAFile is a file with the certificate authorities of the API (PEM). Empty means
	// HYPERFLEET_API_CA_FILE, or else those of the system.
	CAFile string
}

// fleetEnv is the environment of the client.
type fleetEnv struct {
	Endpoint  string          `key:"endpoint" env:"HYPERFLEET_API_ENDPOINT" doc:"URL of the fleet API."`
	Token     settings.Secret `key:"token" env:"HYPERFLEET_API_TOKEN" secret:"true" doc:"Bearer token."`
	TokenFile string          `key:"token_file" env:"HYPERFLEET_API_TOKEN_FILE" doc:"File with the bearer token."`
	CAFile    string          `key:"ca_file" env:"HYPERFLEET_API_CA_FILE" doc:"File with certificate authorities."`
}

// fleetClient is the client of the fleet API, with the list that Retire needs.
type fleetClient struct {
	*client.Reporter

	client *client.Client
}

// newFleetAPIClient returns a client of the fleet API. It sends nothing.
func newFleetAPIClient(c FleetConfig, env func(string) (string, bool), adapter string) (Fleet, error) {
	var e fleetEnv
	if _, err := settings.Load(&e, settings.Source{Env: env}); err != nil {
		return nil, err
	}
	endpoint := cmp.Or(c.Endpoint, e.Endpoint)
	if endpoint == "" {
		return nil, errors.New("the URL of the fleet API is not set: set HYPERFLEET_API_ENDPOINT or Config.Fleet.Endpoint")
	}
	token, err := c.tokenSourceOrNil(e)
	if err != nil {
		return nil, err
	}
	// The kit has its own backoff, so the client does not retry. An event may precede its change on a standby.
	fleet, err := client.New(client.Config{
		Endpoint: endpoint, Token: token, CAFile: cmp.Or(c.CAFile, e.CAFile),
		UserAgent: "fleetloop-adapter/" + adapter, MaxAttempts: 1, ReadLatest: true, WrapTransport: telemetry.PropagateTraces,
	})
	if err != nil {
		return nil, err
	}
	return fleetClient{fleet.Reporter(), fleet}, nil
}

// tokenSourceOrNil returns the source of the bearer token. It is nil if neither c nor the environment has one.
func (c FleetConfig) tokenSourceOrNil(e fleetEnv) (client.TokenSource, error) {
	file := cmp.Or(c.TokenFile, e.TokenFile)
	switch {
	case c.TokenFile == "" && e.Token != "" && file != "":
		return nil, errors.New("both HYPERFLEET_API_TOKEN and HYPERFLEET_API_TOKEN_FILE are set; set only one")
	case file != "":
		return client.FileToken(file), nil
	case e.Token != "":
		return client.StaticToken(e.Token.Reveal()), nil
	}
	return nil, nil //nolint:nilnil // requests are anonymous
}

// CloseIdle closes the connections that no request uses.
func (c fleetClient) CloseIdle() { c.client.CloseIdle() }

// ListDeleting implements deletingLister.
func (c fleetClient) ListDeleting(ctx context.Context, collection string) iter.Seq2[v1.Resource, error] {
	return c.client.Collection(collection).List(ctx, client.ListOptions{Search: "deleted_time is not null"})
}
