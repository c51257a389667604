// Package v1 is the wire contract of the fleet API, version 1. It holds types and constants only.
//
// The fields are those of the public HyperFleet API and those that the templates and decision rules of its sentinel name:
// metadata, ownerResource, and the phase and times in status. The file openapi.yaml describes the same for other languages.
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

// A Phase summarises a resource's status in one word.
type Phase string

// The phases. Only PhaseReady counts as ready for the sentinel.
const (
	// PhasePending means that no required adapter has reported yet.
	PhasePending Phase = "Pending"
	// PhaseProvisioning means that adapters work on the current generation.
	PhaseProvisioning Phase = "Provisioning"
	// PhaseReady means that every required adapter reported the current generation as available.
	PhaseReady Phase = "Ready"
	// PhaseFailed means that a required adapter reported itself unhealthy for the current generation.
	PhaseFailed Phase = "Failed"
	// PhaseDeleting means that deletion was requested, and that adapters have not all finalised.
	PhaseDeleting Phase = "Deleting"
)

// Condition types. Every report has the first three, and Finalized matters while a resource is being deleted. The API
// aggregates the last two, and one "<Adapter>Successful" per required adapter that has reported.
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

	// OwnerResource is the parent, nil for a top-level resource. OwnerReferences is the same, as the public API names it.
	OwnerResource   *Reference `json:"ownerResource,omitempty"`
	OwnerReferences *Reference `json:"owner_references,omitempty"`

	// Spec is what the owner requested. The API keeps it byte for byte.
	Spec json.RawMessage `json:"spec"`

	// Generation starts at 1. It rises when the spec changes or deletion is requested, and only then.
	Generation int64 `json:"generation"`

	CreatedTime time.Time  `json:"created_time"`
	UpdatedTime time.Time  `json:"updated_time"`
	CreatedBy   string     `json:"created_by,omitempty"`
	UpdatedBy   string     `json:"updated_by,omitempty"`
	DeletedTime *time.Time `json:"deleted_time,omitempty"`
	DeletedBy   string     `json:"deleted_by,omitempty"`

	Status Status `json:"status"`
}

// Metadata repeats the fields that templates look for under metadata.
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

// Status is the status of a resource, aggregated from the reports of the required adapters.
type Status struct {
	Phase Phase `json:"phase"`

	// ObservedGeneration is the lowest generation that a required adapter last reported on, 0 while one has never reported.
	ObservedGeneration int64 `json:"observed_generation"`

	// LastUpdatedTime is the oldest report of a required adapter. Before its first report, an adapter counts as of the creation.
	LastUpdatedTime time.Time `json:"last_updated_time"`

	// LastTransitionTime changes only when Phase changes.
	LastTransitionTime time.Time `json:"last_transition_time"`

	Conditions []Condition `json:"conditions"`

	// ShootStatus is the state of a cluster's Shoot, as a cluster-worker saw it last. Only clusters have it and the fields below.
	ShootStatus        ShootStatus `json:"shoot_status,omitempty"`
	ShootStatusMessage string      `json:"shoot_status_message,omitempty"`
	// SyncError is the error of the last attempt to sync the cluster to Gardener.
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

// A List is one page of a collection. Pages by number have Total, the number of all matches. Pages by token have Continue,
// unless they are the last.
type List struct {
	Items    []Resource `json:"items"`
	Page     int        `json:"page,omitempty"`
	Size     int        `json:"size"`
	Total    *int64     `json:"total,omitempty"`
	Continue string     `json:"continue,omitempty"`

	// Cursor is where a client continues that follows the changes after it has listed: all pages, and the changes since the
	// cursor of the first page, are the collection without a gap.
	Cursor string `json:"cursor,omitempty"`
}

// Changes are the changes of a collection since a cursor. A resource occurs once, in its current state.
type Changes struct {
	Items []Resource `json:"items"`

	// Removed holds the ids of resources that no longer exist or no longer match the selector. It may name some that never did.
	Removed []string `json:"removed"`

	Size int `json:"size"`

	// Cursor is where to continue. More reports whether there are more changes now.
	Cursor string `json:"cursor"`
	More   bool   `json:"more"`
}

// A WatchEventType is the type of an event of a watch.
type WatchEventType string

// The event types.
const (
	// WatchChanged has the current resource as its data.
	WatchChanged WatchEventType = "changed"
	// WatchRemoved has an object with the id of a resource that no longer exists or no longer matches the selector.
	WatchRemoved WatchEventType = "removed"
	// WatchBookmark means that everything before its cursor was sent. Its data are an empty object.
	WatchBookmark WatchEventType = "bookmark"
	// WatchError ends a watch; its data are a Problem.
	WatchError WatchEventType = "error"
)

// A WatchEvent is one event of a watch: a server-sent event whose id is the cursor behind it.
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
	// Metadata has the display name. Clients may give the labels here or in Labels, and not in both.
	Metadata *Metadata       `json:"metadata,omitempty"`
	Spec     json.RawMessage `json:"spec"`
}

// A PatchRequest is the body of PATCH on a resource. Each value replaces the whole previous one; nil leaves it unchanged.
type PatchRequest struct {
	Spec        json.RawMessage    `json:"spec,omitempty"`
	Labels      *map[string]string `json:"labels,omitempty"`
	Annotations *map[string]string `json:"annotations,omitempty"`
}

// A Report is what an adapter observed of one resource. It is the body of POST and PUT on statuses.
type Report struct {
	Adapter            string `json:"adapter"`
	ObservedGeneration int64  `json:"observed_generation"`
	// ObservedTime is the time of the observation. Nil means now.
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

// An AdapterCondition is the condition of a report with the time of its last change of status.
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

// A Problem is an error answer, application/problem+json as defined by RFC 9457.
type Problem struct {
	Type     string       `json:"type"`
	Title    string       `json:"title"`
	Status   int          `json:"status"`
	Detail   string       `json:"detail,omitempty"`
	Instance string       `json:"instance,omitempty"`
	Code     string       `json:"code,omitempty"`
	TraceID  string       `json:"trace_id,omitempty"`
	Errors   []FieldError `json:"errors,omitempty"`
	// Loaded is what a bulk load created before the problem. It stays.
	Loaded *LoadResult `json:"loaded,omitempty"`
}

// A FieldError is the error of one field of a request.
type FieldError struct {
	Field string `json:"field"`
	// Constraint is required, min, max, min_length, max_length, pattern, enum, format or unique, as in the public HyperFleet API.
	Constraint string `json:"constraint,omitempty"`
	// Pointer is the place in the body as a JSON pointer. Only violations of a registered schema have it.
	Pointer string `json:"pointer,omitempty"`
	Message string `json:"message"`
	Value   any    `json:"value,omitempty"`
}

// A ForceDeleteRequest is the body of POST on force-delete.
type ForceDeleteRequest struct {
	// Reason is why the deletion does not wait for the adapters. It is logged.
	Reason string `json:"reason"`
}
