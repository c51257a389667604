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
	"github.com/fleetloop/fleetloop/internal/app/apiclient"
	"github.com/fleetloop/fleetloop/internal/console"
	"github.com/fleetloop/fleetloop/internal/console/session"
)

// A fleet calls the fleet API for the console.
type fleet struct {
	anonymous *fleetclient.Client
	transport http.RoundTripper // of all requests to the fleet API
}

func newFleet(cfg Part) (*fleet, error) {
	f := &fleet{}
	client, err := apiclient.New(apiclient.Config{
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

// as returns a client with the token of a person. All persons share the connections.
func (f *fleet) as(token string) (*fleetclient.Client, error) {
	return f.anonymous.WithToken(fleetclient.StaticToken(token))
}

// identify returns the person to whom the fleet API attributes a token.
func (f *fleet) identify(ctx context.Context, token string) (session.User, error) {
	client, err := f.as(token)
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

// sources returns the streams of the fleet API.
func (f *fleet) sources() []console.Source {
	return []console.Source{
		{Name: "clusters", Topics: []string{console.TopicClusters}, Follow: f.followCollection(v1.CollectionClusters, console.TopicClusters)},
		{Name: "nodepools", Topics: []string{console.TopicNodePools}, Follow: f.followCollection(v1.CollectionNodePools, console.TopicNodePools)},
		{Name: "changes", Topics: []string{console.TopicChanges}, Follow: f.followTimeline},
	}
}

type followFunc = func(context.Context, console.Subscription, func(console.StreamEvent) error) error

func (f *fleet) followCollection(collection, topic string) followFunc {
	return func(ctx context.Context, s console.Subscription, emit func(console.StreamEvent) error) error {
		client, err := f.as(s.Who.Token)
		if err != nil {
			return err
		}
		q := url.Values{}
		if s.Cursor != "" {
			q.Set("changed_since", s.Cursor)
		}
		return explainExpiry(client.Raw().Watch(ctx, collection, q, func(e v1.WatchEvent) error { return emit(newStreamEvent(topic, e)) }))
	}
}

func (f *fleet) followTimeline(ctx context.Context, s console.Subscription, emit func(console.StreamEvent) error) error {
	client, err := f.as(s.Who.Token)
	if err != nil {
		return err
	}
	return explainExpiry(client.Raw().WatchChangeEvents(ctx, fleetclient.ChangeEventOptions{}, s.Cursor, func(e v1.WatchEvent) error {
		return emit(newStreamEvent(console.TopicChanges, e))
	}))
}

func newStreamEvent(topic string, e v1.WatchEvent) console.StreamEvent {
	out := console.StreamEvent{Cursor: e.Cursor}
	switch e.Type { //nolint:exhaustive // any other has only a cursor
	case v1.WatchRemoved:
		out.Topic, out.Op = topic, console.OpRemoved
	case v1.WatchBookmark:
		return out
	default:
		out.Topic, out.Op = topic, console.OpChanged
	}
	out.Item = json.RawMessage(bytes.Clone(e.Data)) // the data are valid only until the next event
	return out
}

// explainExpiry returns console.ErrExpired if the fleet API no longer has the changes since a cursor.
func explainExpiry(err error) error {
	if e, ok := errors.AsType[*fleetclient.Error](err); ok && (e.Status == http.StatusGone || e.Status == http.StatusBadRequest) {
		return errors.Join(console.ErrExpired, err) // a bad cursor is one of another database
	}
	return err
}
