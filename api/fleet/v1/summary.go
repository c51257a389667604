package v1

import "time"

// SummaryPath is the path of the summary of the fleet, and StuckPath that of the stuck resources.
const (
	SummaryPath = BasePath + "/summary"
	StuckPath   = BasePath + "/stuck"
)

// A Summary counts the resources that the caller may read. The server counts in the background.
type Summary struct {
	// AsOf is the age of the counts: they include every change that was committed before.
	AsOf time.Time `json:"as_of"`
	// Kinds has the counts of clusters and nodepools, by collection.
	Kinds map[string]KindSummary `json:"kinds"`
	Sync  SyncSummary            `json:"sync"`
	// Deliveries counts the change events of the cluster-worker that sinks do not accept.
	Deliveries DeliverySummary `json:"deliveries"`
	// TopReasons are the most frequent reasons why resources are not ready or not synced.
	TopReasons []SummaryReason `json:"top_reasons"`
	// Labels counts the clusters by the values of each configured label.
	Labels map[string]map[string]LabelSummary `json:"labels"`
	// MoreLabelValues is the number of omitted values, for each label with too many.
	MoreLabelValues map[string]int `json:"more_label_values,omitempty"`
}

// A LabelSummary counts resources by phase.
type LabelSummary struct {
	Total  int64           `json:"total"`
	Phases map[Phase]int64 `json:"phases"`
}

// A KindSummary counts the resources of a kind.
type KindSummary struct {
	LabelSummary

	OldestNotReady *OldestResource `json:"oldest_not_ready,omitempty"`
}

// A SyncSummary counts the syncs of clusters to Gardener.
type SyncSummary struct {
	States         map[SyncState]int64 `json:"states"`
	OldestUnsynced *OldestResource     `json:"oldest_unsynced,omitempty"`
}

// MaxDeliveries is the highest count in a DeliverySummary. It means "at least".
const MaxDeliveries = 10_000

// A DeliverySummary counts deliveries of change events to sinks.
type DeliverySummary struct {
	// Failing is the number of deliveries that failed and are tried again.
	Failing int64 `json:"failing"`
	// FailingSince is the first attempt of the one that fails for longest.
	FailingSince *time.Time `json:"failing_since,omitempty"`
	// GivenUp is the number of deliveries that were rejected or expired in the last 24 hours, and
	// were not sent again since.
	GivenUp int64 `json:"given_up"`
}

// An OldestResource is the resource that has been in a state for longest.
type OldestResource struct {
	ID    string    `json:"id"`
	Name  string    `json:"name"`
	Phase Phase     `json:"phase"`
	Since time.Time `json:"since"`
}

// ReasonSourceSync is the source of reasons that come from the sync to Gardener. The other sources
// are ReasonSourceAdapter, followed by the name of the adapter.
const (
	ReasonSourceSync    = "sync"
	ReasonSourceAdapter = "adapter:"
)

// A SummaryReason is one reason and the number of resources that it holds up.
type SummaryReason struct {
	// Reason is the message, with everything that differs between resources replaced.
	Reason string `json:"reason"`
	Source string `json:"source"`
	Count  int64  `json:"count"`
	// Since and Example are of the resource that has been held up for longest.
	Since   time.Time     `json:"since"`
	Example ReasonExample `json:"example"`
}

// A ReasonExample is one of the resources that a reason holds up.
type ReasonExample struct {
	Kind string `json:"kind"`
	ID   string `json:"id"`
	Name string `json:"name"`
}

// A StuckCauseType is the type of a StuckCause.
type StuckCauseType string

// The types of causes.
const (
	// StuckOnAdapter means that a required adapter has not reported the current generation, or reported a failure.
	StuckOnAdapter StuckCauseType = "adapter"
	// StuckOnGardener means that the sync to Gardener fails or waits.
	StuckOnGardener StuckCauseType = "gardener"
	// StuckOnPause means that the sync is paused.
	StuckOnPause StuckCauseType = "paused"
	// StuckOnNoReport means that no required adapter has reported yet.
	StuckOnNoReport StuckCauseType = "none_reported"
	// StuckOnChildren means that the resource is being deleted, and waits for its node pools.
	StuckOnChildren StuckCauseType = "children"
)

// StuckCauseTypes returns all types of causes.
func StuckCauseTypes() []StuckCauseType {
	return []StuckCauseType{StuckOnAdapter, StuckOnGardener, StuckOnPause, StuckOnNoReport, StuckOnChildren}
}

// A StuckCause is what holds a resource up.
type StuckCause struct {
	Type StuckCauseType `json:"type"`
	// Adapter is the required adapter that holds it up.
	Adapter string `json:"adapter,omitempty"`
	// Reason is the reason that the adapter reported.
	Reason string `json:"reason,omitempty"`
	// Code is the code of Gardener's error, or its class.
	Code    string `json:"code,omitempty"`
	Message string `json:"message"`
}

// A StuckResource is a resource that has not been ready, or not been synced, for long.
type StuckResource struct {
	Kind        string `json:"kind"`
	ID          string `json:"id"`
	Name        string `json:"name"`
	ClusterID   string `json:"cluster_id,omitempty"`
	ClusterName string `json:"cluster_name,omitempty"`
	Phase       Phase  `json:"phase"`
	// Since is the time since which it is not ready or not synced, whichever is earlier.
	Since              time.Time  `json:"since"`
	Generation         int64      `json:"generation"`
	ObservedGeneration int64      `json:"observed_generation"`
	Cause              StuckCause `json:"cause"`
	// Attempts and NextAttempt are of the sync of a cluster that is not synced.
	Attempts    int        `json:"attempts,omitempty"`
	NextAttempt *time.Time `json:"next_attempt,omitempty"`
}

// A StuckList is one page of stuck resources, the oldest first. A page that is not the last may be
// short, or empty.
type StuckList struct {
	Items []StuckResource `json:"items"`
	// Continue is the token of the next page, empty at the end.
	Continue string `json:"continue,omitempty"`
}
