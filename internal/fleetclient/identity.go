package fleetclient

import (
	"context"
	"net/http"
	"net/url"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// WhoAmI returns the identity of the caller in the API. An error for which IsNotFound is true means
// that the server does not support this.
func (c *Client) WhoAmI(ctx context.Context) (identity v1.Identity, err error) {
	_, err = c.callJSON(ctx, request{method: http.MethodGet, root: v1.WhoAmIPath}, nil, &identity)
	return identity, err
}

// CanI asks whether the caller may use a verb on resources of a collection, or on one resource by
// its name or id.
func (c *Client) CanI(ctx context.Context, verb v1.Verb, collection, name string) (v1.Permission, error) {
	q := url.Values{"verb": {string(verb)}, "resource": {collection}}
	if name != "" {
		q.Set("name", name)
	}
	var answer v1.Permission
	_, err := c.callJSON(ctx, request{method: http.MethodGet, root: v1.CanIPath, query: q}, nil, &answer)
	return answer, err
}
