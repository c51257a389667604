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

// authorize returns the author with whose scope a principal may use a verb on resources of a kind.
// Handlers of resources and the answers of can-i come from it, so that they do not differ.
func authorize(who auth.Principal, verb v1.Verb) (author, error) {
	var scope Scope
	var err error
	switch verb {
	case v1.VerbGet, v1.VerbList:
		scope, err = readScope(who)
	case v1.VerbCreate, v1.VerbPatch, v1.VerbDelete:
		return writeScope(who)
	case v1.VerbRetry, v1.VerbPause, v1.VerbResume:
		scope, err = syncControlScope(who)
	case v1.VerbReport:
		scope, err = reportScope(who)
	default:
		err = rest.NewError(rest.CodeForbidden, "%q is not a verb of this API", verb)
	}
	return author{scope: scope, subject: who.Subject, tenant: who.Tenant}, err
}

// listScope returns the scope in which a principal may list and follow resources.
func listScope(who auth.Principal) (Scope, error) {
	by, err := authorize(who, v1.VerbList)
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

// canI answers whether the caller may do something. A refusal has the reason that the request would
// have.
func (pr permissionRoutes) canI(w http.ResponseWriter, r *http.Request, who auth.Principal) error {
	verb, k, name, err := pr.parseCanI(r.URL.Query())
	if err != nil {
		return err
	}
	answer := v1.Permission{Allowed: true}
	if err := pr.checkPermission(r, who, verb, k, name); err != nil {
		refused, ok := errors.AsType[*rest.Error](err)
		if !ok || refused.Code != rest.CodeForbidden && refused.Code != rest.CodeNotFound {
			return err
		}
		answer = v1.Permission{Reason: refused.Detail}
	}
	return writeValue(w, http.StatusOK, answer)
}

// checkPermission returns why the principal may not use a verb on a kind, or on one resource.
func (pr permissionRoutes) checkPermission(r *http.Request, who auth.Principal, verb v1.Verb, k *kind, name string) error {
	by, err := authorize(who, verb)
	switch {
	case err != nil:
		return err
	case verb == v1.VerbCreate && k.parent == nil:
		return requireTenant(by, k, by.tenant)
	case verb == v1.VerbCreate || name == "": // the name of a child to create is not taken yet
		return nil
	}
	return pr.requireVisible(r, by.scope, k, name)
}

// requireVisible refuses a resource that does not exist in the scope. The name may be an id.
func (pr permissionRoutes) requireVisible(r *http.Request, scope Scope, k *kind, name string) error {
	if uuid.Validate(name) == nil {
		_, err := pr.api.store.Get(r.Context(), scope, Key{k.name, strings.ToLower(name)})
		if !errors.Is(err, ErrNotFound) {
			return err
		}
	}
	named, err := search.Parse("name = '" + strings.ReplaceAll(name, "'", "''") + "'")
	if err != nil {
		return notFound(k, name)
	}
	found := false
	_, err = pr.api.store.List(r.Context(), scope, Query{Kind: k.name, Search: named, Limit: 1}, func(*Record) error {
		found = true
		return nil
	})
	if err == nil && !found {
		return notFound(k, name)
	}
	return err
}

// parseCanI parses a question.
func (pr permissionRoutes) parseCanI(v url.Values) (verb v1.Verb, k *kind, name string, err error) {
	if err = checkParameters(v, "verb", "resource", "name"); err != nil {
		return "", nil, "", err
	}
	verb, name = v1.Verb(v.Get("verb")), v.Get("name")
	verbs := v1.Verbs()
	if !slices.Contains(verbs, verb) {
		return "", nil, "", rest.NewQueryError("verb", "enum", string(verb), "must be one of %s", joinWords(verbs))
	}
	var collections []string
	for _, k := range pr.api.kinds {
		if k.collection == v.Get("resource") {
			if slices.Contains([]v1.Verb{v1.VerbRetry, v1.VerbPause, v1.VerbResume}, verb) && !k.synced {
				return "", nil, "", rest.NewQueryError("verb", "enum", string(verb), "is only for clusters")
			}
			return verb, k, name, nil
		}
		collections = append(collections, k.collection)
	}
	slices.Sort(collections)
	return "", nil, "", rest.NewQueryError("resource", "enum", v.Get("resource"), "must be one of %s", strings.Join(collections, ", "))
}

// readScope returns the scope in which a principal may read.
func readScope(who auth.Principal) (Scope, error) {
	switch {
	case who.ReadsAll():
		return Scope{All: true}, nil
	case who.Tenant == "":
		return Scope{}, rest.NewError(rest.CodeForbidden, "%q has no tenant", who.Subject)
	}
	return Scope{Tenant: who.Tenant}, nil
}

// syncControlScope returns the scope in which a principal may control the sync of clusters.
func syncControlScope(who auth.Principal) (Scope, error) {
	if !who.Steers() {
		return Scope{}, rest.NewError(rest.CodeForbidden, "%q has the role %s, which can read resources but not change them", who.Subject, joinWords(who.Roles))
	}
	return readScope(who)
}

// writeScope returns the author with whose scope a principal may create, change and delete
// resources.
func writeScope(who auth.Principal) (author, error) {
	if !who.Changes() {
		return author{}, rest.NewError(rest.CodeForbidden, "%q has the role %s, which cannot change resources", who.Subject, joinWords(who.Roles))
	}
	scope, err := readScope(who)
	return author{scope: scope, subject: who.Subject, tenant: who.Tenant}, err
}

// reportScope returns the scope in which a principal may report status.
func reportScope(who auth.Principal) (Scope, error) {
	if !who.Reports() {
		return Scope{}, rest.NewError(rest.CodeForbidden, "reporting status needs the role %s, which %q does not have", auth.System, who.Subject)
	}
	return readScope(who)
}
