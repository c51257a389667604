package fleetclient

import (
	"context"
	"net/http"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// WhoAmI asks who the caller is to the API. An error that IsNotFound knows means
// that the server does not say.
func (c *Client) WhoAmI(ctx context.Context) (identity v1.Identity, err error) {
	_, err = c.callJSON(ctx, request{method: http.MethodGet, root: v1.WhoAmIPath}, nil, &identity)
	return identity, err
}
