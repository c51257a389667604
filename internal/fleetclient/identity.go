package fleetclient

import (
	"context"
	"net/http"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// WhoAmI returns the identity of the caller in the API. An error for which IsNotFound is true means
// that the server does not support this.
func (c *Client) WhoAmI(ctx context.Context) (identity v1.Identity, err error) {
	_, err = c.callJSON(ctx, request{method: http.MethodGet, root: v1.WhoAmIPath}, nil, &identity)
	return identity, err
}
