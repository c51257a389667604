// Package auth authenticates requests.
//
// There are two modes. In mode none, all requests have the same principal; it is meant for a single machine, and New
// refuses it unless the listener is on loopback, and CheckSite refuses requests of other web sites. In mode bearer, a request carries a token of one of two sorts, either
// or both of which may be set up: static tokens from a file that is reloaded when it changes, and JWTs of OpenID
// Connect issuers, checked for signature, issuer, audience and time.
//
// An unavailable issuer does not keep the process from starting. Tokens whose keys are known remain
// valid; others fail with ErrUnavailable, which is not a rejection.
//
// A request can ask to impersonate another principal. Only the role operator may do so, because it reads and changes
// all tenants already. See AuthenticateAndImpersonate.
package auth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/fleetloop/fleetloop/internal/httpserver"
)

// A Role grants additional permissions to a principal. The set is closed.
type Role string

// The roles. The permissions of a principal's roles add up. A principal without a role is a user of
// its tenant: it reads and changes the resources of that tenant.
const (
	// System is the role of sentinels and adapters. They read the resources of all tenants, control
	// their sync and write reports, and nothing else.
	System Role = "system"
	// Viewer is the role of people who read the resources of all tenants. They change nothing, not
	// even in their own tenant.
	Viewer Role = "viewer"
	// Operator is the role of people who read and change the resources of all tenants. The
	// resources they create belong to their own tenant or, without one, to the tenant of the owner.
	Operator Role = "operator"
)

// A Principal is the authenticated sender of a request.
type Principal struct {
	Subject string
	// Tenant owns the resources that the principal creates. It also limits what the principal sees,
	// unless the principal is unrestricted or has a role.
	Tenant string
	Roles  []Role
	// Expires is the expiry of the token, zero if it does not expire.
	Expires time.Time
	// Unrestricted is set without authentication: the principal has all permissions.
	Unrestricted bool
	// ImpersonatedBy is the subject of the caller who impersonates the principal, "" for nobody. Records use Actor,
	// which has both.
	ImpersonatedBy string
}

// HasRole reports whether the principal has the role.
func (p Principal) HasRole(r Role) bool { return slices.Contains(p.Roles, r) }

// CanReadAllTenants reports whether the principal sees the resources of all tenants.
func (p Principal) CanReadAllTenants() bool {
	return p.Unrestricted || p.HasRole(System) || p.HasRole(Viewer) || p.HasRole(Operator)
}

// CanChangeResources reports whether the principal may create, change and delete the resources it sees.
func (p Principal) CanChangeResources() bool {
	return p.Unrestricted || p.HasRole(Operator) || !p.CanReadAllTenants()
}

// CanControlSync reports whether the principal may control the sync of the clusters it sees, and submit
// change events for them.
func (p Principal) CanControlSync() bool { return p.CanChangeResources() || p.HasRole(System) }

// CanSendForAllTenants reports whether the principal, if it may send change events at all, may name their tenant. A
// principal of one tenant may not, though its role may let it read those of all.
func (p Principal) CanSendForAllTenants() bool { return p.Unrestricted || p.Tenant == "" }

// CanReportStatus reports whether the principal may write the reports of adapters.
func (p Principal) CanReportStatus() bool { return p.Unrestricted || p.HasRole(System) }

// Errors of Authenticate.
var (
	// ErrNoToken means that the request has no bearer token.
	ErrNoToken = errors.New("no bearer token")
	// ErrInvalidToken means that the token is unknown or not trusted.
	ErrInvalidToken = errors.New("invalid bearer token")
	// ErrExpired is an ErrInvalidToken for a token that was once valid.
	ErrExpired = fmt.Errorf("%w: expired", ErrInvalidToken)
	// ErrUnavailable means that the token cannot be verified at present.
	ErrUnavailable = errors.New("the token's issuer is unreachable")
)

// The modes.
const (
	ModeNone   = "none"
	ModeBearer = "bearer"
)

// DefaultTenant owns the resources that are created without authentication.
const DefaultTenant = "default"

// Config is the configuration of authentication.
type Config struct {
	Mode string `key:"mode" env:"FLEET_API_AUTH_MODE" flag:"auth-mode" default:"none" validate:"oneof=none bearer" doc:"Authentication mode: none (no authentication, only on a loopback address) or bearer (tokens)."`

	TokenFile string `key:"token_file" env:"FLEET_API_TOKEN_FILE" flag:"auth-token-file" doc:"YAML file with the static bearer tokens: tokens, a list of {token or sha256, subject, tenant, roles}. It is reloaded when it changes."`

	Issuers []Issuer `key:"issuers" validate:"dive" doc:"OpenID Connect issuers whose tokens are accepted."`

	// Names maps tokens to subjects in mode none, so that changes have an author. They grant no
	// permission, and a request with another token, or without one, is anonymous. It cannot be
	// configured: 'fleetloop up' names the persons of its console.
	Names map[string]string
}

// An Issuer is one OpenID Connect provider whose tokens are accepted.
type Issuer struct {
	Issuer string `key:"issuer" validate:"required,url" doc:"URL of the issuer, exactly as in the iss claim of its tokens."`

	Audience string `key:"audience" validate:"required" doc:"Audience that a token must have."`

	KeysURL string `key:"keys_url" validate:"omitempty,url" doc:"URL of the issuer's keys; by default it is discovered."`

	Algorithms []string `key:"algorithms" default:"RS256,ES256,EdDSA" validate:"dive,oneof=RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 ES512 EdDSA" doc:"Accepted signature algorithms."`

	TenantClaim string `key:"tenant_claim" default:"tenant" doc:"Claim with the tenant; dots separate nested claims."`

	RolesClaim string `key:"roles_claim" default:"roles" doc:"Claim with the roles, a list or words separated by spaces; dots separate nested claims."`

	SystemRole string `key:"system_role" default:"system" doc:"Value of the roles claim for the role system."`

	ViewerRole string `key:"viewer_role" doc:"Value of the roles claim for the role viewer, which reads all tenants; empty disables the role for this issuer."`

	OperatorRole string `key:"operator_role" doc:"Value of the roles claim for the role operator, which reads and changes all tenants; empty disables the role for this issuer."`
}

// Deps holds the dependencies of an Authenticator.
type Deps struct {
	// ListenAddr is the listen address of the server. ModeNone requires a loopback address.
	ListenAddr string
	// Client fetches issuers' keys. Nil means a client with a timeout.
	Client *http.Client
	Log    *slog.Logger
}

// An Authenticator authenticates requests. It is safe for concurrent use.
type Authenticator struct {
	anonymous bool
	names     map[string]string                // by token, if anonymous
	tokens    *httpserver.TokenFile[Principal] // nil without a file
	issuers   map[string]*issuer               // by issuer URL
}

// New checks the configuration and reads the token file. It does not contact the issuers.
func New(cfg Config, deps Deps) (*Authenticator, error) {
	configured := cfg.TokenFile != "" || len(cfg.Issuers) > 0
	switch cfg.Mode {
	case ModeNone:
		if configured {
			return nil, errors.New("auth mode \"none\" does not use a token file or issuers; set the mode to \"bearer\" to use them")
		}
		if !httpserver.IsLoopback(deps.ListenAddr) {
			return nil, fmt.Errorf(
				"auth mode \"none\" allows anyone who can reach %q; listen on a loopback address, or set the mode to \"bearer\" with a token file or issuers",
				deps.ListenAddr,
			)
		}
		return &Authenticator{anonymous: true, names: cfg.Names}, nil
	case ModeBearer:
		if !configured {
			return nil, errors.New("auth mode \"bearer\" needs a token file or issuers")
		}
	default:
		return nil, fmt.Errorf("unknown auth mode %q; use none or bearer", cfg.Mode)
	}

	a := &Authenticator{issuers: make(map[string]*issuer, len(cfg.Issuers))}
	for _, c := range cfg.Issuers {
		if _, ok := a.issuers[c.Issuer]; ok {
			return nil, fmt.Errorf("issuer %q is configured twice", c.Issuer)
		}
		i, err := newIssuer(c, deps.Client)
		if err != nil {
			return nil, fmt.Errorf("configure issuer %q: %w", c.Issuer, err)
		}
		a.issuers[c.Issuer] = i
	}
	if cfg.TokenFile != "" {
		t, err := httpserver.OpenTokenFile(cfg.TokenFile, readTokenFile, deps.Log)
		if err != nil {
			return nil, err //nolint:wrapcheck // it says that it is about the token file
		}
		a.tokens = t
	}
	return a, nil
}

// CheckSite returns why a request may come from a page of another web site. Without authentication, such a page could
// change the fleet, or read it under a name that resolves to this address (DNS rebinding). With authentication, it lacks
// the token, and CheckSite returns nil.
func (a *Authenticator) CheckSite(r *http.Request) error {
	switch {
	case !a.anonymous:
		return nil
	case !httpserver.IsLoopbackHost(r.Host):
		return fmt.Errorf(
			"without authentication the fleet API does not answer to the host name %q; call it by localhost or 127.0.0.1, or set the mode to \"bearer\"",
			r.Host,
		)
	case http.NewCrossOriginProtection().Check(r) != nil:
		return errors.New(
			"without authentication the fleet API takes no changes from a page of another web site; use the console, or set the mode to \"bearer\"",
		)
	}
	return nil
}

// Authenticate returns the principal of a token in an Authorization header. Its errors are, or wrap, those of this
// package. Requests are for AuthenticateAndImpersonate, which knows all their headers.
func (a *Authenticator) Authenticate(ctx context.Context, authorizationHeader string) (Principal, error) {
	token := httpserver.TokenFromHeader(authorizationHeader)
	if a.anonymous {
		subject := cmp.Or(a.names[token], "anonymous")
		return Principal{Subject: subject, Tenant: DefaultTenant, Unrestricted: true}, nil
	}
	if token == "" {
		return Principal{}, ErrNoToken
	}
	if a.tokens != nil {
		if p, ok := a.tokens.Lookup(ctx, httpserver.HashToken(token)); ok {
			return p, nil
		}
	}
	if i, ok := a.issuers[readUnverifiedIssuer(token)]; ok {
		return i.verifyToken(ctx, token)
	}
	return Principal{}, fmt.Errorf("%w: it matches no configured token and no configured issuer", ErrInvalidToken)
}
