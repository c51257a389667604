package v1

import (
	"encoding/json"
	"time"
)

// ChangesPath is where change events are listed, and under which they are taken:
// with the name of a cluster behind it.
const ChangesPath = "/api/changes"

// ChangeBucketsPath is where change events are counted by lane and time step.
const ChangeBucketsPath = ChangesPath + "/buckets"

// A ChangeEvent is something that was done, as the timeline has it. Beside what
// its sender told there is what became of it here.
type ChangeEvent struct {
	// Actor is the person who did it, if that is known, else the source.
	Actor      string    `json:"actor"`
	RecordedAt time.Time `json:"recordedAt"`
	// RecordedBy is who told it, as its token says; empty is the fleet API itself.
	RecordedBy string `json:"recordedBy,omitempty"`
	// Tenant is whose it is; empty is nobody's.
	Tenant string `json:"tenant,omitempty"`

	Action      string             `json:"action"`
	Timestamp   time.Time          `json:"timestamp"`
	Source      string             `json:"source"`
	Cluster     string             `json:"cluster"`
	Node        string             `json:"node"`
	HealthEvent *ChangeHealthEvent `json:"healthEvent,omitempty"`
	DryRun      bool               `json:"dryRun"`
	ID          string             `json:"id"`
	Subject     string             `json:"subject,omitempty"`
	Summary     string             `json:"summary,omitempty"`
	Outcome     string             `json:"outcome,omitempty"`
	Reason      string             `json:"reason,omitempty"`
	Session     string             `json:"session,omitempty"`
	Links       []ChangeLink       `json:"links,omitempty"`
	Details     map[string]string  `json:"details,omitempty"`
	// Changes are the fields that were changed, and ChangesOmitted how many more
	// there were.
	Changes        []ChangedField `json:"changes,omitempty"`
	ChangesOmitted int            `json:"changesOmitted,omitempty"`
}

// A ChangedField is one field that was changed. Before and After are JSON values;
// an empty one means that the field was not set. Long values are cut, and those
// that may be secret are "[redacted]".
type ChangedField struct {
	Field  string          `json:"field"`
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
}

// A ChangeHealthEvent is the health report that led to a change.
type ChangeHealthEvent struct {
	CheckName  string   `json:"checkName"`
	ErrorCode  string   `json:"errorCode"`
	Agent      string   `json:"agent"`
	IsFatal    bool     `json:"isFatal"`
	Message    string   `json:"message"`
	ErrorCodes []string `json:"errorCodes,omitempty"`
}

// A ChangeLink leads from a change to more.
type ChangeLink struct {
	Href string `json:"href"`
	Text string `json:"text,omitempty"`
}

// A ChangeEventList is one page of change events, the newest first.
type ChangeEventList struct {
	Items []ChangeEvent `json:"items"`
	// Continue is the token of the next page with what is older, empty at its end.
	Continue string `json:"continue,omitempty"`
	// Live is where a stream begins that tells what is not in the list yet. It may
	// tell once more what came while the list was made.
	Cursor string `json:"cursor"`
}

// ChangeBuckets counts change events by lane and time step. The lanes with the most
// events come first.
type ChangeBuckets struct {
	Since       time.Time    `json:"since"`
	Until       time.Time    `json:"until"`
	StepSeconds int64        `json:"step_seconds"`
	Lanes       []ChangeLane `json:"lanes"`
	// MoreLanes is the number of lanes that are left out.
	MoreLanes int `json:"more_lanes"`
}

// A ChangeLane holds the number of change events, and of failed ones, in each time
// step.
type ChangeLane struct {
	Name string `json:"name"`
	// Cluster is the cluster of a node. Lanes of clusters and actors have none.
	Cluster string  `json:"cluster,omitempty"`
	Counts  []int64 `json:"counts"`
	Failed  []int64 `json:"failed"`
}

// ChangesAccepted is the result of sending change events.
type ChangesAccepted struct {
	// Stored is how many are kept now, and Known how many were kept before.
	Stored     int `json:"stored"`
	Duplicates int `json:"duplicates"`
	// Different are the ids of those known ones that say something else than what
	// is kept, which stays.
	Conflicts []string `json:"conflicts"`
}
