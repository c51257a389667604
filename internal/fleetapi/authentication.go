package fleetapi

import (
	"errors"
	"net/http"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
	"github.com/fleetloop/fleetloop/internal/fleetapi/rest"
)

// requireAuthentication authenticates a request and passes its principal to a handler.
func (a *API) requireAuthentication(next handler) handler {
	return func(w http.ResponseWriter, r *http.Request, _ auth.Principal) error {
		if err := a.auth.CheckSite(r); err != nil {
			return rest.NewError(rest.CodeForbidden, "%s", err)
		}
		principal, err := a.auth.AuthenticateAndImpersonate(r.Context(), r.Header)
		if errors.Is(err, auth.ErrImpersonation) {
			a.log.WarnContext(r.Context(), "impersonation refused", "method", r.Method, "path", r.URL.Path, "err", err)
		}
		if err != nil {
			return toAuthProblem(err)
		}
		if principal.ImpersonatedBy != "" { // reads leave no other trace
			a.log.InfoContext(r.Context(), "request impersonates",
				"subject", principal.Subject, "impersonated_by", principal.ImpersonatedBy, "method", r.Method, "path", r.URL.Path)
		}
		return next(w, r, principal)
	}
}

func toAuthProblem(err error) error {
	const challenge = `Bearer realm="fleet-api"`
	switch {
	case errors.Is(err, auth.ErrImpersonation):
		return rest.NewError(rest.CodeForbidden, "%s", err)
	case errors.Is(err, auth.ErrUnavailable):
		return &rest.Error{
			Code: rest.CodeUnavailable, RetryAfter: retryAfter, Cause: err,
			Detail: "the fleet API cannot reach the issuer of the token to verify it; retry later",
		}
	case errors.Is(err, auth.ErrNoToken):
		return &rest.Error{
			Code: rest.CodeUnauthenticated, Challenge: challenge,
			Detail: "the request has no bearer token; send the header Authorization: Bearer TOKEN",
		}
	case errors.Is(err, auth.ErrExpired):
		return &rest.Error{
			Code: rest.CodeUnauthenticated, Challenge: challenge + `, error="invalid_token", error_description="expired"`,
			Detail: "the bearer token has expired; send a new token",
		}
	}
	return &rest.Error{
		Code: rest.CodeUnauthenticated, Challenge: challenge + `, error="invalid_token"`, Cause: err,
		Detail: "the bearer token is not valid; send a token from the issuer that the fleet API trusts",
	}
}

func (a *API) serveIdentity(w http.ResponseWriter, _ *http.Request, principal auth.Principal) error {
	identity := v1.Identity{
		Subject:         principal.Subject,
		ImpersonatedBy:  principal.ImpersonatedBy,
		Tenant:          principal.Tenant,
		Roles:           []string{},
		ReadScope:       v1.ScopeNone,
		WriteScope:      v1.ScopeNone,
		CanReportStatus: principal.CanReportStatus(),
	}
	for _, role := range principal.Roles {
		identity.Roles = append(identity.Roles, string(role))
	}
	switch {
	case principal.CanReadAllTenants():
		identity.ReadScope = v1.ScopeAll
	case principal.Tenant != "":
		identity.ReadScope = v1.ScopeTenant
	}
	if principal.CanChangeResources() {
		identity.WriteScope = identity.ReadScope
	}
	w.Header().Set(v1.VersionHeader, a.version)
	return rest.WriteJSONValue(w, http.StatusOK, identity)
}
