package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/httpserver"
)

// ErrImpersonation means that the caller is authenticated, and may not impersonate whom the request names.
var ErrImpersonation = errors.New("impersonation refused")

// AuthenticateAndImpersonate returns the principal of a request with the given headers: that of its token, or the one that
// this asks to impersonate. Such a request never has the rights of its token; without a user, it is refused.
func (a *Authenticator) AuthenticateAndImpersonate(ctx context.Context, h http.Header) (Principal, error) {
	caller, err := a.Authenticate(ctx, h.Get("Authorization"))
	if err != nil || !asksForImpersonation(h) {
		return caller, err
	}
	p, err := caller.impersonate(h)
	if err != nil {
		return Principal{}, fmt.Errorf("%w: %w", ErrImpersonation, err)
	}
	return p, nil
}

// CanImpersonate reports whether the principal may impersonate others. Without authentication, no
// principal may: the records would not have the person who acted.
func (p Principal) CanImpersonate() bool {
	return p.HasRole(Operator) && !p.Unrestricted && p.Subject != "" && p.ImpersonatedBy == ""
}

// impersonate returns the principal that headers name. It acts with the tenant and the roles that they name, and not
// with those that it has in its own tokens, which are not known.
func (p Principal) impersonate(h http.Header) (Principal, error) {
	switch {
	case p.Unrestricted:
		return Principal{}, errors.New("impersonation needs authentication, which is off")
	case !p.CanImpersonate():
		return Principal{}, fmt.Errorf("only the role %s may impersonate, and %q does not have it", Operator, p.Subject)
	}
	target, err := parseImpersonation(h)
	if err != nil {
		return Principal{}, err
	}
	for _, right := range crossTenantRights() {
		if right.has(target) && !right.has(p) {
			return Principal{}, fmt.Errorf("%q could then %s, which %q itself cannot", target.Subject, right.name, p.Subject)
		}
	}
	target.Expires, target.ImpersonatedBy = p.Expires, p.Subject
	return target, nil
}

// A right is a permission that is not limited to one tenant.
type right struct {
	name string
	has  func(Principal) bool
}

// crossTenantRights returns the rights that an impersonated principal has only if the caller has them. Those within one
// tenant are part of the role operator.
func crossTenantRights() []right {
	return []right{
		{"read all tenants", Principal.CanReadAllTenants},
		{"change all tenants", func(p Principal) bool { return p.CanReadAllTenants() && p.CanChangeResources() }},
		{"control the sync of all tenants", func(p Principal) bool { return p.CanReadAllTenants() && p.CanControlSync() }},
		{"report status", Principal.CanReportStatus},
		{"send change events for any tenant", func(p Principal) bool { return p.CanControlSync() && p.CanSendForAllTenants() }},
	}
}

func asksForImpersonation(h http.Header) bool {
	for name := range h {
		if v1.IsImpersonationHeader(name) {
			return true
		}
	}
	return false
}

// parseImpersonation returns the principal that headers name. It refuses what it does not know: to ignore it could
// widen the rights.
func parseImpersonation(h http.Header) (Principal, error) {
	var target Principal
	for name, values := range h {
		if !v1.IsImpersonationHeader(name) {
			continue
		}
		switch name {
		case v1.ImpersonateUserHeader, v1.ImpersonateTenantHeader:
			if len(values) != 1 {
				return Principal{}, fmt.Errorf("the header %s must be given once", name)
			}
		case v1.ImpersonateRoleHeader:
		case v1.ImpersonateGroupHeader:
			return Principal{}, fmt.Errorf("the fleet API has no groups; use %s and %s", v1.ImpersonateTenantHeader, v1.ImpersonateRoleHeader)
		default:
			return Principal{}, fmt.Errorf("the header %s is not known; use %s, %s and %s",
				name, v1.ImpersonateUserHeader, v1.ImpersonateTenantHeader, v1.ImpersonateRoleHeader)
		}
	}
	target.Subject = h.Get(v1.ImpersonateUserHeader)
	if !isValidSubject(target.Subject) || strings.TrimSpace(target.Subject) != target.Subject {
		return Principal{}, fmt.Errorf("the header %s must name a user, in 1 to 253 printable characters", v1.ImpersonateUserHeader)
	}
	target.Tenant = h.Get(v1.ImpersonateTenantHeader)
	_, inTenant := h[v1.ImpersonateTenantHeader]
	if inTenant && (!httpserver.IsValidSubjectOrTenant(target.Tenant) || strings.TrimSpace(target.Tenant) != target.Tenant) {
		return Principal{}, fmt.Errorf("the header %s must name a tenant, in 1 to 253 printable characters", v1.ImpersonateTenantHeader)
	}
	for _, value := range h[v1.ImpersonateRoleHeader] {
		role := Role(value)
		if !slices.Contains([]Role{System, Viewer, Operator}, role) {
			return Principal{}, fmt.Errorf("%q is not a role; the header %s must be %s, %s or %s, and repeated for several",
				value, v1.ImpersonateRoleHeader, System, Viewer, Operator)
		}
		if !target.HasRole(role) {
			target.Roles = append(target.Roles, role)
		}
	}
	if target.Tenant == "" && len(target.Roles) == 0 {
		return Principal{}, fmt.Errorf("impersonation of %q needs a tenant or a role: the headers %s and %s",
			target.Subject, v1.ImpersonateTenantHeader, v1.ImpersonateRoleHeader)
	}
	return target, nil
}

// impersonationMark is the text between an actor and the person who impersonated it. No subject may contain it, so that
// nobody can choose a name that reads like one.
const impersonationMark = " (impersonated by "

// Actor returns the name under which changes of the principal are recorded. It always has the person who acted.
func (p Principal) Actor() string {
	if p.ImpersonatedBy == "" {
		return p.Subject
	}
	return p.Subject + impersonationMark + p.ImpersonatedBy + ")"
}

// SplitActor returns the subject of a recorded actor, and the person who impersonated it, if any.
func SplitActor(actor string) (subject, impersonatedBy string) {
	subject, by, ok := strings.Cut(actor, impersonationMark)
	if by, closed := strings.CutSuffix(by, ")"); ok && closed {
		return subject, by
	}
	return actor, ""
}

func isValidSubject(s string) bool {
	return httpserver.IsValidSubjectOrTenant(s) && !strings.Contains(strings.ToLower(s), strings.TrimSpace(impersonationMark))
}
