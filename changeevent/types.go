package changeevent

import (
	"context"
	"time"
)

// A ChangeEvent describes one change: an action that was completed, a state
// transition, or a dry run of an action.
//
// Zero fields are omitted or filled in with the defaults of the client.
// SendChangeEvent copies the event, so the caller may reuse it.
type ChangeEvent struct {
	// Action is the name of the action, in lower case with hyphens, such as
	// ActionCordon.
	Action string
	// NodeName is the name of the node, or empty if the change affects no node.
	NodeName string
	// Subject identifies an object other than a node, such as
	// "executions/scale-web".
	Subject string
	// CheckName, ErrorCode, ErrorCodes, Agent, IsFatal and Message describe the
	// health report that caused the change. An empty ErrorCode is set to
	// ErrorCodes, joined with commas.
	CheckName  string
	ErrorCode  string
	ErrorCodes []string
	Agent      string
	IsFatal    bool
	Message    string
	// Reason explains the change in a few words.
	Reason string
	// Timestamp is the time of the change. Zero means the time of the call.
	Timestamp time.Time
	// QueuedAt is the time from which Config.MaxAge counts, if it is later than
	// Timestamp, as for an event that is sent again on request.
	QueuedAt time.Time
	// DryRun marks the event as a dry run. Config.DryRun marks all events.
	DryRun bool

	// ID identifies the change. A repeated event for the same change has the same
	// ID. If it is empty, the client derives it from the other fields.
	ID string
	// Summary is one line of text for people. If it is empty, Summarize generates it.
	Summary string
	// Outcome is OutcomeSucceeded or OutcomeFailed. Empty means succeeded.
	Outcome string
	// Session groups related changes, such as those from a cordon to the uncordon.
	Session string
	// Source is the component that made the change. Empty means Config.Source.
	Source string
	// Cluster is the name of the cluster. Empty means Config.ClusterName.
	Cluster string
	// Links point to more information. Config.Links are added to them.
	Links []Link
	// Details holds additional names and values, few and short. DetailActor names
	// the person who made or requested the change.
	Details map[string]string
	// Changes lists the fields that were changed. At most 32 are sent, and secret
	// values are redacted. ChangesOmitted is the number of further fields.
	Changes        []FieldChange
	ChangesOmitted int

	// OnDelivery, if set, is called once for each accepted event, when it is
	// delivered or dropped. It runs on a goroutine of the client and must not block.
	OnDelivery func(Delivery)
}

// laterOfTimestampAndQueuedAt returns the time from which the age of the event counts.
func (e *ChangeEvent) laterOfTimestampAndQueuedAt() time.Time {
	if e.QueuedAt.After(e.Timestamp) {
		return e.QueuedAt
	}
	return e.Timestamp
}

// DetailActor is the key in Details for the person who made or requested the
// change: the identity that the request was authenticated as.
const DetailActor = "actor"

// DetailImpersonatedBy is the key in Details for the person who impersonated the
// actor: who really made or requested the change.
const DetailImpersonatedBy = "impersonated_by"

// A Link points to more information, such as a runbook or a dashboard.
type Link struct {
	// Href is an http or https URL. A link with any other URL is omitted.
	Href string `json:"href"`
	// Text is the text of the link. Empty means that sinks show the URL.
	Text string `json:"text,omitempty"`
}

// The outcomes of a change.
const (
	OutcomeSucceeded = "succeeded"
	OutcomeFailed    = "failed"
)

// A Delivery is the result of sending an event.
type Delivery struct {
	// ID is the id of the event, given or derived.
	ID string
	// Class is empty if a sink accepted the event, otherwise the error class.
	Class Class
	// Permanent reports that sending the same event again would fail, too.
	Permanent bool
	// Status is the HTTP status of the last response, or 0 without a response.
	Status int
	// Attempts is the number of requests that were sent.
	Attempts int
	// At is the time of the result.
	At time.Time
}

// A Class is the error class of an event that was not delivered.
type Class string

// The error classes: for responses, for failed requests, and for events that were
// not sent.
const (
	ClassRedirect      Class = "redirect"       // 3xx; redirects are not followed
	ClassClientError   Class = "client_error"   // any other 4xx
	ClassUnauthorized  Class = "unauthorized"   // 401
	ClassForbidden     Class = "forbidden"      // 403
	ClassNotFound      Class = "not_found"      // 404
	ClassGone          Class = "gone"           // 410
	ClassRateLimited   Class = "rate_limited"   // 408, 425 or 429
	ClassServerError   Class = "server_error"   // 5xx
	ClassConnection    Class = "connection"     // the connection failed or was lost
	ClassDNS           Class = "dns"            // the host name did not resolve
	ClassTLS           Class = "tls"            // the TLS handshake or the certificate verification failed
	ClassTimeout       Class = "timeout"        // no response within Config.Timeout
	ClassAddressDenied Class = "address_denied" // the address is not allowed
	ClassEncode        Class = "encode"         // the event cannot be encoded in the format
	ClassQueueFull     Class = "queue_full"     // dropped from a full queue
	ClassClosed        Class = "closed"         // sent after Close
	ClassShutdown      Class = "shutdown"       // no response before Close ended
	ClassExpired       Class = "expired"        // older than Config.MaxAge
)

// Client defines the interface for sending change events to an external sink.
// All methods are safe for concurrent use.
//
// Create a client with NewClient and call SendChangeEvent from any goroutine. Call
// Close when the process ends, after all senders have stopped.
type Client interface {
	// SendChangeEvent queues an event for delivery and returns at once. It never
	// blocks, never fails and starts no goroutine. Values of the context, such as
	// a trace, are used; its cancellation and deadline do not affect the delivery.
	//
	// It does nothing if the client is nil, disabled or closed.
	SendChangeEvent(ctx context.Context, event ChangeEvent)

	// Close stops accepting events and waits up to Config.ShutdownTimeout for
	// pending events. If the sink asked for a longer pause, Close drops pending
	// events at once. It returns nil if all events were delivered, otherwise an
	// error with the number of lost events. Further calls return the same result.
	Close() error
}

// The actions of the node fault pipeline.
const (
	ActionCordon             = "cordon"
	ActionUncordon           = "uncordon"
	ActionDrainStarted       = "drain-started"
	ActionDrainCompleted     = "drain-completed"
	ActionDrainFailed        = "drain-failed"
	ActionRebootRequested    = "reboot-requested"
	ActionTerminateRequested = "terminate-requested"
	ActionRebootExecuted     = "reboot-executed"
	ActionTerminateExecuted  = "terminate-executed"
)

// Further actions of the node fault pipeline. They report the progress of the
// actions above: the provider accepted the request, or the action failed or was
// cancelled.
const (
	ActionRebootSent      = "reboot-sent"
	ActionTerminateSent   = "terminate-sent"
	ActionRebootFailed    = "reboot-failed"
	ActionTerminateFailed = "terminate-failed"
	ActionDrainCancelled  = "drain-cancelled"
	ActionSupportRequired = "support-required"
)

// Optional actions of the node fault pipeline. They are sent only if the
// configuration enables them.
const (
	ActionOverrideDetected = "override-detected"
	ActionBudgetExhausted  = "budget-exhausted"
)

// The actions of the other components.
const (
	ActionShootCreated = "shoot-created"
	ActionShootUpdated = "shoot-updated"
	ActionShootDeleted = "shoot-deleted"
	ActionShootReady   = "shoot-ready"
	ActionShootFailed  = "shoot-failed"

	ActionExecutionStarted    = "execution-started"
	ActionExecutionSucceeded  = "execution-succeeded"
	ActionExecutionFailed     = "execution-failed"
	ActionExecutionApproved   = "execution-approved"
	ActionExecutionRejected   = "execution-rejected"
	ActionExecutionRolledBack = "execution-rolled-back"

	ActionClusterCreated = "cluster-created"
	ActionClusterChanged = "cluster-changed"
	ActionClusterDeleted = "cluster-deleted"
)

// The product names in summaries.
const (
	ProductNVSentinel = "NVSentinel"
	ProductFleetloop  = "Fleetloop"
)

// The sources of change events.
const (
	SourceFaultQuarantine     = "nvsentinel/fault-quarantine"
	SourceNodeDrainer         = "nvsentinel/node-drainer"
	SourceFaultRemediation    = "nvsentinel/fault-remediation"
	SourceJanitor             = "nvsentinel/janitor"
	SourceClusterWorker       = "fleetloop/cluster-worker"
	SourceExecutionController = "fleetloop/execution-controller"
	SourceFleetAPI            = "fleetloop/fleet-api"
)
