package v1

// WhoAmIPath is where callers ask who they are to the API.
const WhoAmIPath = BasePath + "/whoami"

// A Reach says whose resources a right is about.
type Reach string

// The reaches.
const (
	// ReachNone means that the right covers no resources.
	ReachNone Reach = "none"
	// ReachTenant is those of the caller's tenant.
	ReachTenant Reach = "tenant"
	// ReachAll is those of all tenants.
	ReachAll Reach = "all"
)

// An Identity is who a caller is to the API, and what it may do.
type Identity struct {
	Subject string `json:"subject"`
	// Tenant owns what the caller creates. Empty means that the caller belongs to
	// no tenant, and creates only what belongs to a resource that is there.
	Tenant string `json:"tenant,omitempty"`
	// Roles are those of the caller that the API knows. A tenant's user has none.
	Roles []string `json:"roles"`

	// Reads is whose resources the caller sees, and Changes whose it creates,
	// changes and deletes.
	Reads   Reach `json:"reads"`
	Changes Reach `json:"changes"`
	// Reports says whether the caller may report the status of resources.
	Reports bool `json:"reports"`
}
