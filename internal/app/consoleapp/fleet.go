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
	f := &fleetAPIClient{}
	client, err := process.NewFleetClient(process.FleetClientConfig{
		Endpoint: cfg.FleetAPI, CAFile: cfg.FleetAPICAFile, UserAgent: "fleetloop-console",
		Wrap: func(rt http.RoundTripper) http.RoundTripper {
			f.transport = rt
			return rt
		},
	})
	if err != nil {
		return nil, err
	}
	f.anonymous = client
	return f, nil
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

// listStreamSources returns the streams of the fleet API.
func (f *fleetAPIClient) listStreamSources() []console.Source {
	return []console.Source{
		{Name: "clusters", Topics: []string{console.TopicClusters}, Follow: f.newCollectionFollower(v1.CollectionClusters, console.TopicClusters)},
		{Name: "nodepools", Topics: []string{console.TopicNodePools}, Follow: f.newCollectionFollower(v1.CollectionNodePools, console.TopicNodePools)},
		{Name: "changes", Topics: []string{console.TopicChanges}, Follow: f.followChangeEvents},
	}
}

type followFunc = func(context.Context, console.Subscription, func(console.StreamEvent) error) error

func (f *fleetAPIClient) newCollectionFollower(collection, topic string) followFunc {
	return func(ctx context.Context, s console.Subscription, emit func(console.StreamEvent) error) error {
		client, err := f.clientWithToken(s.Who.Token)
		if err != nil {
			return err
		}
		q := url.Values{}
		if s.Cursor != "" {
			q.Set("changed_since", s.Cursor)
		}
		return translateExpiredCursor(client.Raw().Watch(ctx, collection, q, func(e v1.WatchEvent) error { return emit(toStreamEvent(topic, e)) }))
	}
}

func (f *fleetAPIClient) followChangeEvents(
	ctx context.Context, subscription console.Subscription, emit func(console.StreamEvent) error,
) error {
	client, err := f.clientWithToken(subscription.Who.Token)
	if err != nil {
		return err
	}
	return translateExpiredCursor(client.Raw().WatchChangeEvents(ctx, fleetclient.ChangeEventOptions{}, subscription.Cursor, func(e v1.WatchEvent) error {
		return emit(toStreamEvent(console.TopicChanges, e))
	}))
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
	if e, ok := errors.AsType[*fleetclient.Error](err); ok && (e.Status == http.StatusGone || e.Status == http.StatusBadRequest) {
		return errors.Join(console.ErrExpired, err) // a bad cursor is one of another database
	}
	return err
}
