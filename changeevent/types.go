package changeevent

import (
	"context"
	"time"
)

// A ChangeEvent is something that was done: an observed mutation, a transition
// of our own, or a dry run that says so. It is never the absence of an error.
//
// The zero value of each field leaves it out, but for what Client fills in.
// SendChangeEvent takes a copy; what the caller does to it afterwards changes
// nothing.
type ChangeEvent struct {
	// Action is what was done, lower case with hyphens: ActionCordon, ….
	Action string
	// NodeName is the node that it was done to, "" if it was no node.
	NodeName string
	// Subject is what it was done to where that is no node, such as
	// "executions/scale-web".
	Subject string
	// CheckName, ErrorCode, ErrorCodes, Agent, IsFatal and Message are of the
	// health report that led to it. ErrorCode is ErrorCodes joined with commas,
	// and follows from them if it is empty.
	CheckName  string
	ErrorCode  string
	ErrorCodes []string
	Agent      string
	IsFatal    bool
	Message    string
	// Reason says why, in a few words.
	Reason string
	// Timestamp is when it was done. Zero is the time of the call.
	Timestamp time.Time
	// DryRun says that it would have been done. Config.DryRun says so for all.
	DryRun bool

	// ID is the same whenever the same change is told again, and of no other.
	// Empty is derived from the other fields.
	ID string
	// Summary is one line for people. Empty is what Summarize makes of the
	// action and the fields above.
	Summary string
	// Outcome is OutcomeSucceeded, OutcomeFailed or empty, which is succeeded.
	Outcome string
	// Session ties the changes of one sequence together, such as from a cordon to
	// the uncordon.
	Session string
	// Source is the component that did it. Empty is Config.Source, which is never
	// empty.
	Source string
	// Cluster is where it was done. Empty is Config.ClusterName.
	Cluster string
	// Links lead to more. Those of Config.Links are added.
	Links []Link
	// Details are further names and values, few and short. DetailWho is the person
	// who did it, or had it done.
	Details map[string]string
	// Changes are the fields that were changed. At most 32 are sent, without
	// secrets. ChangesOmitted is how many more there were.
	Changes        []FieldChange
	ChangesOmitted int

	// OnDelivery, if set, is called once for each accepted event when it was
	// delivered or given up, from a goroutine of the client. It must not block.
	OnDelivery func(Delivery)
}

// DetailWho is the name of the detail that holds the person who did it, or had
// it done: the identity that a request was authenticated as.
const DetailWho = "who"

// A Link leads to more, such as a runbook or a dashboard.
type Link struct {
	Href string `json:"href"`
	Text string `json:"text,omitempty"`
}

// The outcomes of a change.
const (
	OutcomeSucceeded = "succeeded"
	OutcomeFailed    = "failed"
)

// A Delivery is what became of an event.
type Delivery struct {
	ID string
	// Class is "" if a sink has taken the event, else why not.
	Class Class
	// Permanent says that the same event would fare no better later.
	Permanent bool
	// Status is the last answer of the sink, 0 if there was none.
	Status int
	// Attempts is how often it was tried, 0 if never.
	Attempts int
	At       time.Time
}

// A Class is why an event was not delivered. There are no others.
type Class string

// The classes: of answers, of what kept an answer away, and of events that
// were not sent.
const (
	ClassRedirect     Class = "redirect"
	ClassClientError  Class = "client_error"
	ClassUnauthorized Class = "unauthorized"
	ClassForbidden    Class = "forbidden"
	ClassNotFound     Class = "not_found"
	ClassGone         Class = "gone"
	ClassRateLimited  Class = "rate_limited"
	ClassServerError  Class = "server_error"
	ClassConnection   Class = "connection"
	ClassDNS          Class = "dns"
	ClassTLS          Class = "tls"
	ClassTimeout      Class = "timeout"
	ClassRefused      Class = "address_refused" // the address is one that is not to be reached
	ClassEncode       Class = "encode"
	ClassQueueFull    Class = "queue_full"
	ClassClosed       Class = "closed"
	ClassShutdown     Class = "shutdown"
	ClassExpired      Class = "expired"
)

// Client defines the interface for sending change events to an external sink.
// All methods are safe for concurrent use.
//
// Create one with NewClient, call SendChangeEvent from any goroutine, and Close
// when the process ends, after everything that sends has ended.
type Client interface {
	// SendChangeEvent hands an event over to a worker of the client and returns
	// at once: it never blocks, never fails, and starts no goroutine. The
	// context lends its values (a trace); neither its end nor its deadline has a
	// part in the delivery.
	//
	// It does nothing if the client is nil, disabled or closed.
	SendChangeEvent(ctx context.Context, event ChangeEvent)

	// Close takes no more events and waits for those that were taken, for
	// Config.ShutdownTimeout at most. If the sink asks to be left alone for longer
	// than that, it gives up at once what waits. It returns nil if nothing was left,
	// else an error that says how much. Further calls return the same.
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

// Actions of the node fault pipeline that the record does not have. They say what
// became of the ones above: that a provider has taken the request, and that what
// was told of did not come about, or was not brought to its end.
const (
	ActionRebootSent      = "reboot-sent"
	ActionTerminateSent   = "terminate-sent"
	ActionRebootFailed    = "reboot-failed"
	ActionTerminateFailed = "terminate-failed"
	ActionDrainCancelled  = "drain-cancelled"
	ActionSupportRequired = "support-required"
)

// Further actions of the node fault pipeline, which are sent where they are
// asked for.
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

// The names of products in summaries.
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
