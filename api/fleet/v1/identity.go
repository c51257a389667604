package v1

import "strings"

// WhoAmIPath is the path at which callers read their identity.
const WhoAmIPath = BasePath + "/whoami"

// ReadAfterHeader is the header of the response to a write with the token of that write, and of a read that must find it.
// Tokens have no meaning for clients, but of two of them the greater text is the later one.
const ReadAfterHeader = "Fleetloop-Read-After"

// ReadAfterAll is the value of ReadAfterHeader with which a read finds all writes. The server reads from its primary.
const ReadAfterAll = "FFFFFFFFFFFFFFFFFFFFFFFF"

// VersionHeader is the header of the response to WhoAmIPath with the version of the server: a release, such as 1.2.0,
// or "dev", and after a space the commit.
const VersionHeader = "Fleet-Api-Version"

// A Scope is the set of resources that a permission covers.
type Scope string

// The scopes.
const (
	// ScopeNone covers no resources.
	ScopeNone Scope = "none"
	// ScopeTenant covers the resources of the caller's tenant.
	ScopeTenant Scope = "tenant"
	// ScopeAll covers the resources of all tenants.
	ScopeAll Scope = "all"
)

// The headers of a request that impersonates another principal. The caller needs the role operator. Group is that of
// Kubernetes; the fleet API has no groups and refuses it, as it refuses all other headers that begin with Impersonate.
const (
	ImpersonateUserHeader   = "Impersonate-User"
	ImpersonateTenantHeader = "Impersonate-Tenant"
	ImpersonateRoleHeader   = "Impersonate-Role" // repeated for several roles
	ImpersonateGroupHeader  = "Impersonate-Group"
)

// An Identity is the caller as the API sees it, and its permissions.
type Identity struct {
	Subject string `json:"subject"`
	// ImpersonatedBy is the subject of the token, if the request impersonates Subject.
	ImpersonatedBy string `json:"impersonated_by,omitempty"`
	// Tenant owns the resources that the caller creates. Empty means that it can create only children of existing resources.
	Tenant string `json:"tenant,omitempty"`
	// Roles are the caller's roles that the API knows. A tenant's user has none.
	Roles []string `json:"roles"`

	// ReadScope is what the caller can read, and WriteScope what it can create, change and delete.
	ReadScope  Scope `json:"read_scope"`
	WriteScope Scope `json:"write_scope"`
	// CanReportStatus reports whether the caller may report the status of resources.
	CanReportStatus bool `json:"can_report_status"`
}

// CanIPath is the path at which callers ask for their permissions.
const CanIPath = BasePath + "/can-i"

// A Verb is an action on resources.
type Verb string

// The verbs. VerbRetry, VerbPause and VerbResume are for the sync of clusters, and
// VerbReport for the status reports of adapters.
const (
	VerbGet    Verb = "get"
	VerbList   Verb = "list"
	VerbCreate Verb = "create"
	VerbPatch  Verb = "patch"
	VerbDelete Verb = "delete"
	VerbRetry  Verb = "retry"
	VerbPause  Verb = "pause"
	VerbResume Verb = "resume"
	VerbReport Verb = "report"
)

// Verbs returns all verbs.
func Verbs() []Verb {
	return []Verb{VerbGet, VerbList, VerbCreate, VerbPatch, VerbDelete, VerbRetry, VerbPause, VerbResume, VerbReport}
}

// A Permission says whether the caller may do something, and why not.
type Permission struct {
	Allowed bool   `json:"allowed"`
	Reason  string `json:"reason"`
}

// IsImpersonationHeader reports whether a request with a header of this name asks to impersonate, also if the
// header is not known: to ignore it would give the request the rights of its token. Letters have any case. A name
// with an underscore counts, because some proxies take it for a hyphen.
func IsImpersonationHeader(name string) bool {
	const family = "impersonate"
	return len(name) >= len(family) && strings.EqualFold(name[:len(family)], family)
}
