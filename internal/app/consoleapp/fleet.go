package consoleapp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/process"
	"github.com/fleetloop/fleetloop/internal/console"
	"github.com/fleetloop/fleetloop/internal/console/session"
)

// A fleetAPIClient calls the fleet API for the console.
type fleetAPIClient struct {
	anonymous *fleetclient.Client
	transport http.RoundTripper // of all requests to the fleet API
}

func newFleetClient(cfg Part) (*fleetAPIClient, error) {
	// The console forwards requests over the transport of the client, so that both share connections and CAs.
	var transport http.RoundTripper
	client, err := process.NewFleetClient(process.FleetClientConfig{
		Endpoint:  cfg.FleetAPI,
		CAFile:    cfg.FleetAPICAFile,
		UserAgent: "fleetloop-console",
		Wrap: func(rt http.RoundTripper) http.RoundTripper {
			transport = rt
			return rt
		},
	})
	if err != nil {
		return nil, err
	}
	return &fleetAPIClient{anonymous: client, transport: transport}, nil
}

// clientWithToken returns a client with the token of a person. All persons share the connections.
func (f *fleetAPIClient) clientWithToken(token string) (*fleetclient.Client, error) {
	return f.anonymous.WithToken(fleetclient.StaticToken(token))
}

// lookUpTokenUser returns the person to whom the fleet API attributes a token.
func (f *fleetAPIClient) lookUpTokenUser(ctx context.Context, token string) (session.User, error) {
	client, err := f.clientWithToken(token)
	if err != nil {
		return session.User{}, errors.Join(console.ErrToken, err)
	}
	who, err := client.WhoAmI(ctx)
	if fleetclient.IsUnauthorized(err) {
		return session.User{}, console.ErrToken
	}
	if err != nil {
		return session.User{}, err
	}
	return session.User{Name: who.Subject, Tenant: who.Tenant, Roles: who.Roles}, nil
}

func (f *fleetAPIClient) listStreamSources() []console.Source {
	clusters := collectionStream{f, v1.CollectionClusters, console.TopicClusters}
	nodePools := collectionStream{f, v1.CollectionNodePools, console.TopicNodePools}
	return []console.Source{
		{Name: "clusters", Topics: []string{console.TopicClusters}, Follow: clusters.follow},
		{Name: "nodepools", Topics: []string{console.TopicNodePools}, Follow: nodePools.follow},
		{Name: "changes", Topics: []string{console.TopicChanges}, Follow: f.followChangeEvents},
	}
}

// collectionStream is the stream of a collection of the fleet API.
type collectionStream struct {
	fleet             *fleetAPIClient
	collection, topic string
}

// follow emits the changes of the collection since the cursor of the subscription.
func (s collectionStream) follow(
	ctx context.Context, subscription console.Subscription, emit func(console.StreamEvent) error,
) error {
	client, err := s.fleet.clientWithToken(subscription.Who.Token)
	if err != nil {
		return err
	}
	query := url.Values{}
	if subscription.Cursor != "" {
		query.Set("changed_since", subscription.Cursor)
	}
	err = client.Raw().Watch(ctx, s.collection, query, func(e v1.WatchEvent) error {
		return emit(toStreamEvent(s.topic, e))
	})
	return translateExpiredCursor(err)
}

// followChangeEvents emits the change events since the cursor of the subscription.
func (f *fleetAPIClient) followChangeEvents(
	ctx context.Context, subscription console.Subscription, emit func(console.StreamEvent) error,
) error {
	client, err := f.clientWithToken(subscription.Who.Token)
	if err != nil {
		return err
	}
	all := fleetclient.ChangeEventOptions{}
	err = client.Raw().WatchChangeEvents(ctx, all, subscription.Cursor, func(e v1.WatchEvent) error {
		return emit(toStreamEvent(console.TopicChanges, e))
	})
	return translateExpiredCursor(err)
}

func toStreamEvent(topic string, event v1.WatchEvent) console.StreamEvent {
	out := console.StreamEvent{Cursor: event.Cursor}
	switch event.Type { //nolint:exhaustive // any other has only a cursor
	case v1.WatchRemoved:
		out.Topic, out.Op = topic, console.OpRemoved
	case v1.WatchBookmark:
		return out
	default:
		out.Topic, out.Op = topic, console.OpChanged
	}
	out.Item = json.RawMessage(bytes.Clone(event.Data)) // the data are valid only until the next event
	return out
}

// translateExpiredCursor returns console.ErrExpired if the fleet API no longer has the changes since a cursor.
func translateExpiredCursor(err error) error {
	answer, ok := errors.AsType[*fleetclient.Error](err)
	if !ok {
		return err
	}
	switch answer.Status {
	case http.StatusGone, http.StatusBadRequest: // a bad cursor is one of another database
		return errors.Join(console.ErrExpired, err)
	}
	return err
}
