// Package v1 is the wire contract of the fleet API, version 1.
//
// It holds types and constants only. The fields are those of the public
// HyperFleet API and, beside them, what the templates and decision rules of
// its sentinel name: metadata, ownerResource, and the phase and times in
// status. openapi.yaml in this folder says the same to other languages.
package v1

import (
	"encoding/json"
	"time"
)

// BasePath is the path under which the API serves its collections.
const BasePath = "/api/hyperfleet/v1"

// The kinds of resource.
const (
	KindCluster  = "Cluster"
	KindNodePool = "NodePool"
	KindManifest = "Manifest"
	KindWorkload = "Workload"
)

// Collections are the plural names under BasePath.
const (
	CollectionClusters  = "clusters"
	CollectionNodePools = "nodepools"
	CollectionManifests = "manifests"
	CollectionWorkloads = "workloads"
)

// A Phase is the one-word summary of a resource's status.
type Phase string

// The phases. Only PhaseReady counts as ready for the sentinel.
const (
	// PhasePending means that no required adapter has reported yet.
	PhasePending Phase = "Pending"
	// PhaseProvisioning means that adapters work on the current generation.
	PhaseProvisioning Phase = "Provisioning"
	// PhaseReady means that every required adapter reported the current
	// generation as available.
	PhaseReady Phase = "Ready"
	// PhaseFailed means that a required adapter reported itself unhealthy
	// for the current generation.
	PhaseFailed Phase = "Failed"
	// PhaseDeleting means that deletion was asked for and adapters have not
	// all finalised.
	PhaseDeleting Phase = "Deleting"
)

// Condition types. Every report has the first three; Finalized matters while
// a resource is being deleted. The last two are aggregated by the API, beside
// one "<Adapter>Successful" per required adapter that has reported.
const (
	ConditionAvailable           = "Available"
	ConditionApplied             = "Applied"
	ConditionHealth              = "Health"
	ConditionFinalized           = "Finalized"
	ConditionReconciled          = "Reconciled"
	ConditionLastKnownReconciled = "LastKnownReconciled"
)

// A ConditionStatus is True, False or Unknown.
type ConditionStatus string

// The condition statuses.
const (
	ConditionTrue    ConditionStatus = "True"
	ConditionFalse   ConditionStatus = "False"
	ConditionUnknown ConditionStatus = "Unknown"
)

// A Resource is one cluster, node pool, manifest or workload.
type Resource struct {
	ID   string `json:"id"`
	Kind string `json:"kind"`
	Name string `json:"name"`
	Href string `json:"href"`

	Labels map[string]string `json:"labels,omitempty"`
	// Annotations are strings that the owner stores with the resource. Selectors do not see them.
	Annotations map[string]string `json:"annotations,omitempty"`
	Metadata    Metadata          `json:"metadata"`

	// OwnerResource is the parent, nil for a top-level resource. The same
	// value is served as owner_references, as the public API names it.
	OwnerResource   *Reference `json:"ownerResource,omitempty"`
	OwnerReferences *Reference `json:"owner_references,omitempty"`

	// Spec is what the owner asked for; the API keeps it as it was sent.
	Spec json.RawMessage `json:"spec"`

	// Generation starts at 1 and rises when the spec changes or deletion is
	// asked for, and only then.
	Generation int64 `json:"generation"`

	CreatedTime time.Time  `json:"created_time"`
	UpdatedTime time.Time  `json:"updated_time"`
	CreatedBy   string     `json:"created_by,omitempty"`
	UpdatedBy   string     `json:"updated_by,omitempty"`
	DeletedTime *time.Time `json:"deleted_time,omitempty"`
	DeletedBy   string     `json:"deleted_by,omitempty"`

	Status Status `json:"status"`
}

// Metadata repeats what templates look for under metadata.
type Metadata struct {
	Name        string            `json:"name"`
	DisplayName string            `json:"displayName,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
}

// A Reference names another resource.
type Reference struct {
	ID   string `json:"id"`
	Kind string `json:"kind"`
	Href string `json:"href"`
}

// Status is what the adapters made of the spec, aggregated over the required
// ones.
type Status struct {
	Phase Phase `json:"phase"`

	// ObservedGeneration is the lowest generation that a required adapter
	// last reported on; 0 while one of them has never reported.
	ObservedGeneration int64 `json:"observed_generation"`

	// LastUpdatedTime is the oldest report among the required adapters, so
	// that one silent adapter shows. One that never reported counts as the
	// resource's creation.
	LastUpdatedTime time.Time `json:"last_updated_time"`

	// LastTransitionTime moves only when Phase changes.
	LastTransitionTime time.Time `json:"last_transition_time"`

	Conditions []Condition `json:"conditions"`

	// ShootStatus is how the Shoot of a cluster is, as a cluster-worker saw it
	// last. It and the fields behind it are of clusters alone, and empty where
	// there is nothing to say.
	ShootStatus        ShootStatus `json:"shoot_status,omitempty"`
	ShootStatusMessage string      `json:"shoot_status_message,omitempty"`
	// SyncError is why the cluster could not be brought to Gardener when that was
	// tried last.
	SyncError string `json:"sync_error,omitempty"`
}

// A Condition is one aggregated condition of a resource.
type Condition struct {
	Type               string          `json:"type"`
	Status             ConditionStatus `json:"status"`
	Reason             string          `json:"reason,omitempty"`
	Message            string          `json:"message,omitempty"`
	ObservedGeneration int64           `json:"observed_generation"`
	CreatedTime        time.Time       `json:"created_time"`
	LastUpdatedTime    time.Time       `json:"last_updated_time"`
	LastTransitionTime time.Time       `json:"last_transition_time"`
}

// A List is one page of a collection. Total counts all matches and is served
// for page/size paging only; Continue is set while keyset paging has more.
type List struct {
	Items    []Resource `json:"items"`
	Page     int        `json:"page,omitempty"`
	Size     int        `json:"size"`
	Total    *int64     `json:"total,omitempty"`
	Continue string     `json:"continue,omitempty"`

	// Cursor is where the changes begin that a keyset page may not show: the
	// pages of a list, and then all changes since the cursor of the first of them,
	// are the collection without a gap.
	Cursor string `json:"cursor,omitempty"`
}

// Changes are what changed in a collection since a cursor. A resource stands
// there once, as it is now, however often it changed.
type Changes struct {
	Items []Resource `json:"items"`

	// Removed are the ids of resources that are gone, or that no longer match
	// the selector. It may name some that never did.
	Removed []string `json:"removed"`

	Size int `json:"size"`

	// Cursor is where to go on; More says that there is more by now.
	Cursor string `json:"cursor"`
	More   bool   `json:"more"`
}

// A WatchEventType is what an event of a watch says.
type WatchEventType string

// The event types.
const (
	// WatchChanged has the resource as it is now as its data.
	WatchChanged WatchEventType = "changed"
	// WatchRemoved has an object with the id as its data, of a resource that
	// is gone or no longer matches the selector.
	WatchRemoved WatchEventType = "removed"
	// WatchBookmark says that everything before its cursor was sent. Its data
	// are an empty object.
	WatchBookmark WatchEventType = "bookmark"
	// WatchError ends a watch; its data are a Problem.
	WatchError WatchEventType = "error"
)

// A WatchEvent is one event of a watch, a server-sent event whose id is the
// cursor behind it.
type WatchEvent struct {
	Type   WatchEventType
	Cursor string
	Data   []byte
}

// A CreateRequest is the body of POST on a collection.
type CreateRequest struct {
	Kind   string            `json:"kind,omitempty"`
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations are strings that the owner stores with the resource. Selectors do not see them.
	Annotations map[string]string `json:"annotations,omitempty"`
	// Metadata carries the display name and, for clients that write labels
	// there, the labels. Giving labels in both places is refused.
	Metadata *Metadata       `json:"metadata,omitempty"`
	Spec     json.RawMessage `json:"spec"`
}

// A PatchRequest is the body of PATCH on a resource. Each value that is set
// replaces the whole of what was there; nil leaves it as it is.
type PatchRequest struct {
	Spec        json.RawMessage    `json:"spec,omitempty"`
	Labels      *map[string]string `json:"labels,omitempty"`
	Annotations *map[string]string `json:"annotations,omitempty"`
}

// A Report is what an adapter says about one resource, and the body of POST
// and PUT on statuses.
type Report struct {
	Adapter            string `json:"adapter"`
	ObservedGeneration int64  `json:"observed_generation"`
	// ObservedTime is when the adapter looked. Nil means now.
	ObservedTime *time.Time        `json:"observed_time,omitempty"`
	Conditions   []ReportCondition `json:"conditions"`
	Data         json.RawMessage   `json:"data,omitempty"`
	Metadata     json.RawMessage   `json:"metadata,omitempty"`
}

// A ReportCondition is one condition of a report.
type ReportCondition struct {
	Type    string          `json:"type"`
	Status  ConditionStatus `json:"status"`
	Reason  string          `json:"reason,omitempty"`
	Message string          `json:"message,omitempty"`
}

// An AdapterStatus is the last report of one adapter as the API keeps it.
type AdapterStatus struct {
	Adapter            string             `json:"adapter"`
	ObservedGeneration int64              `json:"observed_generation"`
	Conditions         []AdapterCondition `json:"conditions"`
	Data               json.RawMessage    `json:"data,omitempty"`
	Metadata           json.RawMessage    `json:"metadata,omitempty"`
	CreatedTime        time.Time          `json:"created_time"`
	LastReportTime     time.Time          `json:"last_report_time"`
}

// An AdapterCondition is a report's condition with the time of its last
// change of status.
type AdapterCondition struct {
	ReportCondition
	LastTransitionTime time.Time `json:"last_transition_time"`
}

// An AdapterStatusList is one page of the reports on a resource.
type AdapterStatusList struct {
	Items []AdapterStatus `json:"items"`
	Page  int             `json:"page"`
	Size  int             `json:"size"`
	Total int64           `json:"total"`
}

// A Problem is an error answer, application/problem+json as RFC 9457 has it.
type Problem struct {
	Type     string       `json:"type"`
	Title    string       `json:"title"`
	Status   int          `json:"status"`
	Detail   string       `json:"detail,omitempty"`
	Instance string       `json:"instance,omitempty"`
	Code     string       `json:"code,omitempty"`
	TraceID  string       `json:"trace_id,omitempty"`
	Errors   []FieldError `json:"errors,omitempty"`
	// Loaded is what a bulk load had done before the problem, and stays.
	Loaded *LoadResult `json:"loaded,omitempty"`
}

// A FieldError says what is wrong with one field of a request.
type FieldError struct {
	Field string `json:"field"`
	// Constraint is one that clients of the public HyperFleet API know: required,
	// min, max, min_length, max_length, pattern, enum, format or unique.
	Constraint string `json:"constraint,omitempty"`
	// Pointer is the place in the body as a JSON pointer. Only violations of a
	// registered schema have it.
	Pointer string `json:"pointer,omitempty"`
	Message string `json:"message"`
	Value   any    `json:"value,omitempty"`
}

// A ForceDeleteRequest is the body of POST on force-delete.
type ForceDeleteRequest struct {
	// Reason says why nobody waits for the adapters. It goes into the log.
	Reason string `json:"reason"`
}
