package inspect

import (
	"encoding/json"
	"time"
)

// A PlanReport describes what a sentinel that starts now would do with one collection.
type PlanReport struct {
	Config     string `json:"config"`
	Endpoint   string `json:"endpoint"`
	Collection string `json:"collection"`
	Selector   string `json:"selector"`
	Profile    string `json:"profile"`

	MaxAgeReadySeconds    float64 `json:"max_age_ready_seconds"`
	MaxAgeNotReadySeconds float64 `json:"max_age_not_ready_seconds"`

	// Began and Ended are when the read of the collection began and ended. The fleet may have
	// changed meanwhile; each resource counts in its state when it was read.
	Began time.Time `json:"start_time"`
	Ended time.Time `json:"end_time"`

	// OnServer is the number of resources that the API returned, Matching the number of those that
	// the selector selects, and Due the number of those that would be published now.
	OnServer int `json:"total"`
	Matching int `json:"watched"`
	Due      int `json:"due"`

	// Changed is the number of due resources with a generation that no adapter has observed.
	Changed int `json:"changed"`

	// Reasons and Phases count all matching resources, the most frequent first.
	Reasons []Count `json:"reasons"`
	Phases  []Count `json:"phases"`

	// MostUrgent lists the resources that would be published now: changed generations first, and
	// then those that have waited longest. It may be truncated.
	MostUrgent []DueResource `json:"most_urgent"`

	Events EventRate `json:"events"`

	// EmptyFields lists the values of message_data that are empty, among PayloadsChecked resources:
	// all due resources, and some of the others.
	EmptyFields     []EmptyField `json:"empty_fields"`
	PayloadsChecked int          `json:"payloads_checked"`

	// TextFields lists the values of message_data that send a number or a boolean as a text, among
	// the same resources.
	TextFields []TextField `json:"text_fields"`

	// Payload is the data of one cloud event, omitted if no resource matches.
	Payload *PayloadExample `json:"payload,omitempty"`

	// Warnings counts problems of resources.
	Warnings []WarningCount `json:"warnings"`
}

// A DueResource would be published now.
type DueResource struct {
	ID                 string `json:"id"`
	Name               string `json:"name,omitempty"`
	Phase              string `json:"phase"`
	Generation         int64  `json:"generation"`
	ObservedGeneration int64  `json:"observed_generation"`
	Reason             string `json:"reason"`

	// Since is the time that the rule counted from, omitted if there was none. OverdueSeconds is
	// how long the resource has been due, 0 if unknown.
	Since          time.Time `json:"age_from,omitzero"`
	OverdueSeconds float64   `json:"overdue_seconds"`

	// EventID is the id that the event would have now.
	EventID string `json:"event_id"`
}

// An EventRate is the expected rate of cloud events.
type EventRate struct {
	// PerMinute is the rate in the steady state: each resource once per age of its phase, while
	// phases stay as they are.
	PerMinute float64 `json:"per_minute"`

	// AtMost says that PerMinute is an upper bound instead of an expected value, because the rules
	// are an expression.
	AtMost bool `json:"upper_bound"`

	// Ready and NotReady are its parts.
	Ready    RatePart `json:"ready"`
	NotReady RatePart `json:"not_ready"`

	// Once is the number of events that are published now because of changed generations.
	Once int `json:"one_time"`

	// WorstPerMinute is the rate if no resource were ready.
	WorstPerMinute float64 `json:"per_minute_if_none_ready"`

	// LimitPerMinute is the limit of publish.max_per_second, omitted if it is not set.
	LimitPerMinute float64 `json:"limit_per_minute,omitzero"`
}

// A RatePart is the rate of the resources of one kind of phase.
type RatePart struct {
	Resources int     `json:"resources"`
	PerMinute float64 `json:"per_minute"`
}

// An EmptyField is an empty value of message_data.
type EmptyField struct {
	// Key is the path of the value in the configuration.
	Key string `json:"key"`

	// Reason is the cause for the first resource with the problem, Example.
	Reason    string `json:"reason"`
	Resources int    `json:"resources"`
	Example   string `json:"example"`
}

// A TextField is a value of message_data that sends a number or a boolean as a
// text.
type TextField struct {
	// Key is the path of the value in the configuration, Field the field of
	// the resource that it sends, and Type "number" or "boolean".
	Key   string `json:"key"`
	Field string `json:"field"`
	Type  string `json:"type"`

	// Instead is the value that keeps the type.
	Instead   string `json:"suggestion"`
	Resources int    `json:"resources"`
	Example   string `json:"example"`
}

// A PayloadExample is the data of an event about one resource. If any resource would be published
// now, it is one of those, and Due is true.
type PayloadExample struct {
	ID   string          `json:"id"`
	Due  bool            `json:"due"`
	Data json.RawMessage `json:"data"`
}

// A WarningCount is the number of resources with one kind of problem.
type WarningCount struct {
	Warning   string `json:"warning"`
	Resources int    `json:"resources"`
	Example   string `json:"example,omitempty"`
}
