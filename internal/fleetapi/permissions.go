package fleetapi

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/google/uuid"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
	"github.com/fleetloop/fleetloop/internal/fleetapi/rest"
	"github.com/fleetloop/fleetloop/internal/fleetapi/search"
)

// authorizeVerb returns the author with whose scope a principal may use a verb on resources of a kind.
// Handlers of resources and the answers of can-i come from it, so that they do not differ.
func authorizeVerb(principal auth.Principal, verb v1.Verb) (author, error) {
	switch verb {
	case v1.VerbGet, v1.VerbList:
	case v1.VerbCreate, v1.VerbPatch, v1.VerbDelete:
		if !principal.CanChangeResources() {
			return author{}, rest.NewError(rest.CodeForbidden, "%q has the role %s, which cannot change resources",
				principal.Subject, joinWithCommas(principal.Roles))
		}
	case v1.VerbRetry, v1.VerbPause, v1.VerbResume:
		if !principal.CanControlSync() {
			return author{}, rest.NewError(rest.CodeForbidden, "%q has the role %s, which can read resources but not change them",
				principal.Subject, joinWithCommas(principal.Roles))
		}
	case v1.VerbReport:
		if !principal.CanReportStatus() {
			return author{}, rest.NewError(rest.CodeForbidden, "reporting status needs the role %s, which %q does not have",
				auth.System, principal.Subject)
		}
	default:
		return author{}, rest.NewError(rest.CodeForbidden, "%q is not a verb of this API", verb)
	}
	scope, err := authorizeRead(principal)
	return author{scope: scope, subject: principal.Actor(), tenant: principal.Tenant}, err
}

func authorizeRead(principal auth.Principal) (Scope, error) {
	switch {
	case principal.CanReadAllTenants():
		return Scope{All: true}, nil
	case principal.Tenant == "":
		return Scope{}, rest.NewError(rest.CodeForbidden, "%q has no tenant", principal.Subject)
	}
	return Scope{Tenant: principal.Tenant}, nil
}

// authorizeList returns the scope in which a principal may list and follow resources.
func authorizeList(principal auth.Principal) (Scope, error) {
	by, err := authorizeVerb(principal, v1.VerbList)
	return by.scope, err
}

// requireTenant refuses a new resource without a tenant. A child has that of its parent.
func requireTenant(by author, k *kind, tenant string) error {
	if tenant != "" {
		return nil
	}
	return rest.NewError(rest.CodeForbidden, "%q has no tenant, and a %s needs one: use a token with a tenant", by.subject, k.name)
}

// permissionRoutes answer what a caller may do.
type permissionRoutes struct{ api *API }

// servePermissionCheck answers whether the caller may do something. A refusal has the reason that the request would have.
func (pr permissionRoutes) servePermissionCheck(w http.ResponseWriter, r *http.Request, principal auth.Principal) error {
	verb, k, name, err := pr.parsePermissionQuery(r.URL.Query())
	if err != nil {
		return err
	}
	err = pr.checkPermission(r, principal, verb, k, name)
	if err == nil {
		return rest.WriteJSONValue(w, http.StatusOK, v1.Permission{Allowed: true})
	}
	problem, ok := errors.AsType[*rest.Error](err)
	if ok && (problem.Code == rest.CodeForbidden || problem.Code == rest.CodeNotFound) {
		return rest.WriteJSONValue(w, http.StatusOK, v1.Permission{Reason: problem.Detail})
	}
	return err
}

// checkPermission returns why the principal may not use a verb on a kind, or on one resource.
func (pr permissionRoutes) checkPermission(r *http.Request, principal auth.Principal, verb v1.Verb, k *kind, name string) error {
	by, err := authorizeVerb(principal, verb)
	switch {
	case err != nil:
		return err
	case verb == v1.VerbCreate && k.parent == nil:
		return requireTenant(by, k, by.tenant)
	case verb == v1.VerbCreate, name == "": // the name of a child to create is not taken yet
		return nil
	}
	return pr.requireVisibleResource(r, by.scope, k, name)
}

// requireVisibleResource refuses a resource that does not exist in the scope. The name may be an id.
func (pr permissionRoutes) requireVisibleResource(r *http.Request, scope Scope, k *kind, nameOrID string) error {
	if uuid.Validate(nameOrID) == nil {
		_, err := pr.api.store.Get(r.Context(), scope, Key{k.name, strings.ToLower(nameOrID)})
		if !errors.Is(err, ErrNotFound) {
			return err
		}
	}
	named, err := search.ParseQuery("name = '" + strings.ReplaceAll(nameOrID, "'", "''") + "'")
	if err != nil {
		return newNotFoundError(k, nameOrID)
	}
	found := false
	_, err = pr.api.store.List(r.Context(), scope, Query{Kind: k.name, Search: named, Limit: 1}, func(*Record) error {
		found = true
		return nil
	})
	if err == nil && !found {
		return newNotFoundError(k, nameOrID)
	}
	return err
}

func (pr permissionRoutes) parsePermissionQuery(query url.Values) (verb v1.Verb, k *kind, name string, err error) {
	if err = checkQueryParameters(query, "verb", "resource", "name"); err != nil {
		return "", nil, "", err
	}
	verb, name = v1.Verb(query.Get("verb")), query.Get("name")
	if !slices.Contains(v1.Verbs(), verb) {
		return "", nil, "", rest.NewQueryError("verb", "enum", string(verb), "must be one of %s", joinWithCommas(v1.Verbs()))
	}
	isForSyncs := verb == v1.VerbRetry || verb == v1.VerbPause || verb == v1.VerbResume
	var collections []string
	for _, k := range pr.api.kinds {
		if k.collection == query.Get("resource") {
			if isForSyncs && !k.synced {
				return "", nil, "", rest.NewQueryError("verb", "enum", string(verb), "is only for clusters")
			}
			return verb, k, name, nil
		}
		collections = append(collections, k.collection)
	}
	slices.Sort(collections)
	return "", nil, "", rest.NewQueryError("resource", "enum", query.Get("resource"), "must be one of %s", strings.Join(collections, ", "))
}
