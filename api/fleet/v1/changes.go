package v1

import (
	"encoding/json"
	"time"
)

// ChangesPath is the path of the list of change events. Events are sent to it with the name of a cluster appended.
const ChangesPath = "/api/changes"

// ChangeBucketsPath is the path of the counts of change events by lane and time step.
const ChangeBucketsPath = ChangesPath + "/buckets"

// A ChangeEvent is a change in the timeline: what its sender reported, and what the fleet API recorded about it.
type ChangeEvent struct {
	// Actor is the person who made the change, if known, else the source.
	Actor      string    `json:"actor"`
	RecordedAt time.Time `json:"recordedAt"`
	// RecordedBy is the sender by its token, empty for the fleet API itself.
	RecordedBy string `json:"recordedBy,omitempty"`
	// Tenant is the owner of the event, empty for none.
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
	// Changes are the changed fields, and ChangesOmitted is the number of those that are left out.
	Changes        []ChangedField `json:"changes,omitempty"`
	ChangesOmitted int            `json:"changesOmitted,omitempty"`
}

// A ChangedField is one changed field. Before and After are JSON values, empty for a field that was not set. Long values are
// cut, and possible secrets are "[redacted]".
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

// A ChangeLink leads to more about a change.
type ChangeLink struct {
	Href string `json:"href"`
	Text string `json:"text,omitempty"`
}

// A ChangeEventList is one page of change events, the newest first.
type ChangeEventList struct {
	Items []ChangeEvent `json:"items"`
	// Continue is the token of the next page with older events, empty on the last one.
	Continue string `json:"continue,omitempty"`
	// Cursor is where a stream of the events begins that are not in the list yet. It may repeat those that came while the list
	// was made.
	Cursor string `json:"cursor"`
}

// ChangeBuckets counts change events by lane and time step. The lanes with the most events come first.
type ChangeBuckets struct {
	Since       time.Time    `json:"since"`
	Until       time.Time    `json:"until"`
	StepSeconds int64        `json:"step_seconds"`
	Lanes       []ChangeLane `json:"lanes"`
	// MoreLanes is the number of lanes that are left out.
	MoreLanes int `json:"more_lanes"`
}

// A ChangeLane holds the number of change events, and of failed ones, in each time step.
type ChangeLane struct {
	Name string `json:"name"`
	// Cluster is the cluster of a node. Lanes of clusters and actors have none.
	Cluster string  `json:"cluster,omitempty"`
	Counts  []int64 `json:"counts"`
	Failed  []int64 `json:"failed"`
}

// ChangesAccepted is the result of sending change events.
type ChangesAccepted struct {
	// Stored is the number of new events, and Duplicates that of events that were already stored.
	Stored     int `json:"stored"`
	Duplicates int `json:"duplicates"`
	// Conflicts are the ids of those duplicates whose content differs from the stored one, which stays.
	Conflicts []string `json:"conflicts"`
}

// ChangeDeliveriesPath is the path of the deliveries of a change event.
const ChangeDeliveriesPath = ChangesPath + "/{id}/deliveries"

// UndeliveredChangesPath is the path of the list of deliveries that fail.
const UndeliveredChangesPath = ChangesPath + "/undelivered"

// ChangeResendPath is the path at which a change event is sent again.
const ChangeResendPath = ChangesPath + "/{id}/resend"

// IdempotencyKeyHeader is the header with the key of a request, so that it takes effect once however often it is sent.
const IdempotencyKeyHeader = "Idempotency-Key"

// A ChangeResend is the optional body of a request to send a change event again.
type ChangeResend struct {
	// Sink is the name of a sink. Empty means each sink that rejected the event or for which it expired.
	Sink   string `json:"sink,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// A DeliveryState is the state of the delivery of a change event to a sink.
type DeliveryState string

// The states of a delivery.
const (
	// DeliveryPending means that the event is being sent, or waits for its next attempt or for an earlier event of its cluster.
	DeliveryPending DeliveryState = "pending"
	// DeliveryDelivered means that the sink accepted the event.
	DeliveryDelivered DeliveryState = "delivered"
	// DeliverySkipped means that the sink does not want events of this action.
	DeliverySkipped DeliveryState = "skipped"
	// DeliveryRejected means that the sink rejected the content of the event. It is not sent again.
	DeliveryRejected DeliveryState = "rejected"
	// DeliveryExpired means that the event grew too old before a sink accepted it.
	DeliveryExpired DeliveryState = "expired"
)

// ChangeDeliveries are the deliveries of a change event, one for each sink, by name.
type ChangeDeliveries struct {
	// ID is the id of the event.
	ID string `json:"id"`
	// Recorded reports whether the fleet API has deliveries of the event. It has those of the cluster-worker. Without them nothing
	// is known about the event.
	Recorded bool `json:"recorded"`
	// Reason says why there are none.
	Reason string           `json:"reason,omitempty"`
	Items  []ChangeDelivery `json:"items"`
}

// A ChangeDelivery is the delivery of a change event to one sink.
type ChangeDelivery struct {
	Sink string `json:"sink"`
	// Type is the format in which the sink receives events.
	Type  string        `json:"type"`
	State DeliveryState `json:"state"`
	// Attempts is the number of requests whose result is known.
	Attempts       int        `json:"attempts"`
	FirstAttemptAt *time.Time `json:"first_attempt_at,omitempty"`
	LastAttemptAt  *time.Time `json:"last_attempt_at,omitempty"`
	// NextAttemptAt is set while a failed delivery waits.
	NextAttemptAt *time.Time `json:"next_attempt_at,omitempty"`
	// FinishedAt is when the event was delivered or given up.
	FinishedAt *time.Time `json:"finished_at,omitempty"`
	// Error is the error class of the last attempt, empty if it succeeded. HTTPStatus is the status of a failed response, else 0.
	Error      string `json:"error,omitempty"`
	HTTPStatus int    `json:"http_status,omitempty"`
}

// UndeliveredChanges are deliveries of the cluster-worker's change events that do not succeed.
type UndeliveredChanges struct {
	// Items has those that were given up in the last 24 hours, the newest first, and then those that
	// failed and are tried again, the longest first.
	Items []UndeliveredChange `json:"items"`
	// More reports whether there are more than those in Items.
	More bool `json:"more"`
}

// An UndeliveredChange is a delivery that failed, and its event.
type UndeliveredChange struct {
	EventID  string         `json:"event_id"`
	Action   string         `json:"action"`
	Cluster  string         `json:"cluster"`
	Time     time.Time      `json:"time"`
	Delivery ChangeDelivery `json:"delivery"`
}

// A ChangeResent is the result of a request to send a change event again.
type ChangeResent struct {
	// Queued are the sinks for which the event was queued: none if its deliveries were pending or the request was repeated.
	Queued []string `json:"queued"`
	// Items are the deliveries of the event now.
	Items []ChangeDelivery `json:"items"`
}
