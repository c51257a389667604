package model

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// A Kind is what can go wrong.
type Kind uint8

// The kinds of fault.
const (
	APIError   Kind = iota // 500
	APIBusy                // 429 with Retry-After
	APIGone                // 410 for any place in a list
	APISlow                // an answer that takes long, maybe longer than anyone waits
	APIReset               // the connection is reset in the middle of the body
	APIGarbage             // a body that is cut short, or no JSON
	APIDown                // nothing listens, and what was connected is cut
	StreamCut              // a watch ends in the middle of an event
	StreamDead             // a watch goes silent
	StreamEnd              // a watch ends cleanly, as when the server restarts
	CursorGone             // every cursor given so far is too old
	Withdrawn              // the API is rolled back to a version without some features

	BrokerLosesConfirm
	BrokerRefuses
	BrokerBlocks
	BrokerAway

	NumKinds
)

// String is the kind as histories show it.
func (k Kind) String() string {
	return [NumKinds]string{
		"API error", "API busy", "API gone", "API slow", "API reset", "API garbage", "API down",
		"stream cut", "stream dead", "stream end", "cursor gone", "features withdrawn",
		"confirm lost", "broker refuses", "broker blocks", "broker away",
	}[k]
}

// A Fault goes wrong from From to To, counted from the beginning of the world,
// with probability P each time that it can.
type Fault struct {
	Kind     Kind
	From, To time.Duration
	P        float64

	// Features are what is left of the API, for Withdrawn.
	Features Features
}

// String is the fault as a world shows it.
func (f Fault) String() string { return fmt.Sprintf("%s %s–%s p=%.2f", f.Kind, f.From, f.To, f.P) }

// A Schedule is what goes wrong, and when.
type Schedule struct {
	Begin  time.Time
	Faults []Fault
}

// Struck gives the first fault of some kinds that strikes now.
func (s *Schedule) Struck(r *rand.Rand, kinds ...Kind) (Fault, bool) {
	now := time.Since(s.Begin)
	for _, f := range s.Faults {
		if now < f.From || now >= f.To {
			continue
		}
		for _, k := range kinds {
			if f.Kind == k && Chance(r, f.P) {
				return f, true
			}
		}
	}
	return Fault{}, false
}

// remaining is how long a fault goes on.
func (s *Schedule) remaining(f Fault) time.Duration { return time.Until(s.Begin.Add(f.To)) }
