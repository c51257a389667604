package inspect

import (
	"time"

	"github.com/fleetloop/fleetloop/internal/sentinel/state"
)

// A State describes one resource in a word. The set is closed.
type State string

// The states.
const (
	StateDue        State = "due"         // it would be announced now
	StateHeld       State = "published"   // it is due and was announced, and its adapters still have time to answer
	StateWaiting    State = "waiting"     // it falls due later
	StateNotWatched State = "not_watched" // the selector does not select it
	StateNotFound   State = "not_found"   // the API does not have it
	StateUnreadable State = "invalid"     // it is malformed, and skipped
)

// A WhyReport contains the decision of a configuration about one resource, and the record of the
// running sentinel.
type WhyReport struct {
	Config     string `json:"config"`
	Endpoint   string `json:"endpoint"`
	Collection string `json:"collection"`
	Profile    string `json:"profile"`

	// Time is when the resource was read and the decision made.
	Time time.Time `json:"time"`

	ID    string `json:"id"`
	Name  string `json:"name,omitempty"`
	State State  `json:"state"`

	// Rule is the answer in a sentence: the rule that matched, and its inputs.
	Rule string `json:"message"`

	// Next is when the decision changes, if nothing else changes earlier: the resource falls due,
	// or has been held long enough. It is omitted if the resource is due now, or if the time is
	// unknown.
	Next time.Time `json:"next_event_time,omitzero"`

	// Selector is the selector of the configuration, and Requirements holds its parts.
	Selector     string        `json:"selector"`
	Requirements []Requirement `json:"requirements"`

	// Inputs and Decision are omitted if the resource does not exist, or is unreadable.
	Inputs   *Inputs   `json:"inputs,omitempty"`
	Decision *Decision `json:"decision,omitempty"`

	// Sentinel is the record of the running sentinel.
	Sentinel Recorded `json:"sentinel"`
}

// A Requirement is one part of a selector.
type Requirement struct {
	Requirement string `json:"requirement"`

	// Label is the key of the label, and Value its value in the resource, nil if it is missing.
	Label string  `json:"label"`
	Value *string `json:"value"`
	Met   bool    `json:"met"`
}

// Inputs holds the inputs of the decision. Missing and irrelevant times are omitted.
type Inputs struct {
	Generation         int64     `json:"generation"`
	ObservedGeneration int64     `json:"observed_generation"`
	Phase              string    `json:"phase"`
	Ready              bool      `json:"ready"`
	CreatedTime        time.Time `json:"created_time,omitzero"`
	UpdatedTime        time.Time `json:"updated_time,omitzero"`
	LastUpdatedTime    time.Time `json:"last_updated_time,omitzero"`
	LastTransitionTime time.Time `json:"last_transition_time,omitzero"`

	// MaxAgeSeconds is the age for the resource's phase, and EarlySeconds the reduction of it by
	// jitter.
	MaxAgeSeconds float64 `json:"max_age_seconds"`
	EarlySeconds  float64 `json:"jitter_seconds"`

	// Fault is the fault of the resource, if it was readable all the same.
	Fault string `json:"decode_error,omitempty"`
}

// A Decision is the verdict of the rules alone, whatever was announced before.
type Decision struct {
	Due    bool   `json:"due"`
	Reason string `json:"reason"`

	// Since is the time that the rule counted from, and Next when the resource
	// falls due, or fell due.
	Since time.Time `json:"age_from,omitzero"`
	Next  time.Time `json:"due_time,omitzero"`

	// IntervalSeconds is how long one announcement is valid.
	IntervalSeconds float64 `json:"interval_seconds"`

	// EventID is the id that an event would have now; empty if none is due.
	EventID string `json:"event_id,omitempty"`

	Warning string `json:"warning,omitempty"`
	Error   string `json:"error,omitempty"`
}

// Recorded is the record of the running sentinel about a resource.
type Recorded struct {
	// URL is the URL of the request.
	URL string `json:"url"`

	// Error is why the request failed.
	Error string `json:"error,omitempty"`

	// Watches holds its watches that have a record of the resource.
	Watches []state.ServedDecisions `json:"histories"`

	// LastEvent is the last of their decisions that published an event.
	LastEvent *state.ServedDecision `json:"last_event,omitempty"`
}
