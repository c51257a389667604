package simulation

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// A Kind is a kind of fault.
type Kind uint8

// The kinds of fault.
const (
	APIError   Kind = iota // 500
	APIBusy                // 429 with Retry-After
	APIGone                // 410 for any position in a list
	APISlow                // a slow response, perhaps slower than any timeout
	APIReset               // the connection is reset in the middle of the body
	APIGarbage             // a truncated body, or no JSON
	APIDown                // nothing listens, and all connections are closed
	StreamCut              // a watch ends in the middle of an event
	StreamDead             // a watch goes silent
	StreamEnd              // a watch ends cleanly, as when the server restarts
	CursorGone             // every existing cursor is too old
	Withdrawn              // the API is rolled back to a version without some features

	BrokerLosesConfirm
	BrokerRefuses
	BrokerBlocks
	BrokerAway

	NumKinds
)

// String returns the kind as histories show it.
func (k Kind) String() string {
	return [NumKinds]string{
		"API error", "API busy", "API gone", "API slow", "API reset", "API garbage", "API down",
		"stream cut", "stream dead", "stream end", "cursor gone", "features withdrawn",
		"confirm lost", "broker refuses", "broker blocks", "broker away",
	}[k]
}

// A Fault occurs from From to To, counted from the start of the world, with probability P at each
// opportunity.
type Fault struct {
	Kind     Kind
	From, To time.Duration
	P        float64

	// Features holds the remaining features of the API, for Withdrawn.
	Features Features
}

// String returns the fault as a world shows it.
func (f Fault) String() string { return fmt.Sprintf("%s %s–%s p=%.2f", f.Kind, f.From, f.To, f.P) }

// A Schedule holds the planned faults.
type Schedule struct {
	Begin  time.Time
	Faults []Fault
}

// DrawFault returns the first fault of the given kinds that occurs now.
func (s *Schedule) DrawFault(r *rand.Rand, kinds ...Kind) (Fault, bool) {
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

// remaining returns how long a fault continues.
func (s *Schedule) remaining(f Fault) time.Duration { return time.Until(s.Begin.Add(f.To)) }
