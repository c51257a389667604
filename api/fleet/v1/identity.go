package v1

// WhoAmIPath is where callers ask who they are to the API.
const WhoAmIPath = BasePath + "/whoami"

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

// An Identity is the caller as the API sees it, and its permissions.
type Identity struct {
	Subject string `json:"subject"`
	// Tenant owns the resources that the caller creates. Empty means that the
	// caller has no tenant and can create only children of existing resources.
	Tenant string `json:"tenant,omitempty"`
	// Roles are the caller's roles that the API knows. A tenant's user has none.
	Roles []string `json:"roles"`

	// ReadScope is what the caller can read. WriteScope is what it can create,
	// change and delete.
	ReadScope  Scope `json:"read_scope"`
	WriteScope Scope `json:"write_scope"`
	// CanReportStatus is true if the caller may report the status of resources.
	CanReportStatus bool `json:"can_report_status"`
}
