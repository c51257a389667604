package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// ErrNotImpersonated means that the server ignores the request to impersonate, so that requests would have the rights
// of the client's own token. Nothing was sent.
var ErrNotImpersonated = errors.New("the server does not support impersonation")

// errImpersonation marks errors of the check that the server impersonates, in contrast to those of the request.
var errImpersonation = errors.New("impersonate")

// An Impersonation names the principal with whose rights requests are answered. The token of the client needs the role
// operator. The zero value is none.
type Impersonation struct {
	User string
	// Tenant and Roles are those of the principal. At least one of them is required, because the server does not know
	// those in the principal's own tokens.
	Tenant string
	Roles  []string
}

func (i Impersonation) isZero() bool { return i.User == "" && i.Tenant == "" && len(i.Roles) == 0 }

// addTo adds the headers.
func (i Impersonation) addTo(h http.Header) error {
	switch {
	case i.isZero():
		return nil
	case i.User == "":
		return errors.New("impersonation of a tenant or a role needs a user")
	case i.Tenant == "" && len(i.Roles) == 0:
		return fmt.Errorf("impersonation of %q needs a tenant or a role", i.User)
	}
	h.Set(v1.ImpersonateUserHeader, i.User)
	if i.Tenant != "" {
		h.Set(v1.ImpersonateTenantHeader, i.Tenant)
	}
	for _, role := range i.Roles {
		h.Add(v1.ImpersonateRoleHeader, role)
	}
	_, err := validateAndCloneHeader(h)
	return err
}

// impersonator is the state of a client that impersonates.
type impersonator struct {
	who       Impersonation
	confirmed atomic.Bool
}

// confirmAndRememberIdentity returns an error if an identity is not that of the impersonated principal. A server that does not know the headers
// ignores them, and answers with the identity of the token.
func (i *impersonator) confirmAndRememberIdentity(identity v1.Identity) error {
	if i == nil {
		return nil
	}
	if identity.ImpersonatedBy == "" || identity.Subject != i.who.User || identity.Tenant != i.who.Tenant {
		return fmt.Errorf("%w: it answers as %q", ErrNotImpersonated, identity.Subject)
	}
	i.confirmed.Store(true)
	return nil
}

// confirmImpersonationOnce asks the server once, before the first request, whether it impersonates.
func (c *caller) confirmImpersonationOnce(ctx context.Context, r request) error {
	if c.impersonator == nil || c.impersonator.confirmed.Load() || r.root == v1.WhoAmIPath {
		return nil
	}
	ask := request{method: http.MethodGet, root: v1.WhoAmIPath}
	body, _, err := c.sendAndRead(ctx, ask, nil)
	if hasStatus(err, http.StatusNotFound) {
		return fmt.Errorf("%w: %w", errImpersonation, ErrNotImpersonated)
	}
	var identity v1.Identity
	if err == nil {
		err = decodeBody(ask, body, &identity)
	}
	if err == nil {
		err = c.impersonator.confirmAndRememberIdentity(identity)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errImpersonation, err)
	}
	return nil
}
