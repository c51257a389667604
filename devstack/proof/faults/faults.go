// Package faults schedules faults by a seed, and injects them one at a time per target. A Proxy injects those of the
// network.
package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/fleetloop/fleetloop/devstack/proof/history"
	"github.com/fleetloop/fleetloop/internal/backoff"
)

// Kinds of faults.
const (
	Kill     = "kill"     // kill -9
	Freeze   = "freeze"   // SIGSTOP, then SIGCONT
	Restart  = "restart"  // SIGTERM and a new start
	Cut      = "cut"      // connections break, and new ones are refused for some time
	Slow     = "slow"     // each piece of data is delayed
	Narrow   = "narrow"   // each connection has little bandwidth
	HalfOpen = "halfopen" // connections stay open and transport nothing; new ones work
	Broker   = "broker"   // one server of the broker is down for some time
	Failover = "failover" // the primary database dies, and the standby takes over
	Disk     = "disk"     // the disk of a broker server or of the primary database is full; needs root
	Host     = "host"     // the API server of the host cluster, and with it that of Gardener, is down
	Garden   = "garden"   // the API server of Gardener is down

	Clock = history.ClockFault // a wall clock is ahead or behind for some time

	Tokens      = "tokens"      // all tokens of the fleet API are replaced
	Certificate = "certificate" // the certificate of the fleet API is replaced
	Settings    = "settings"    // the SentinelConfigs change, and change back

	Restore = "restore" // the database is restored to a backup, once and outside the schedule
)

// Kinds returns all kinds of faults.
func Kinds() []string {
	return []string{
		Kill, Freeze, Restart, Cut, Slow, Narrow, HalfOpen, Broker, Failover, Disk, Host, Garden, Clock, Tokens, Certificate, Settings, Restore,
	}
}

// ParseKinds returns the kinds in a comma-separated list. An empty text means all, and "none" means none.
func ParseKinds(text string) ([]string, error) {
	switch text {
	case "":
		return Kinds(), nil
	case "none":
		return nil, nil
	}
	list := strings.Split(text, ",")
	for _, kind := range list {
		if !slices.Contains(Kinds(), kind) {
			return nil, fmt.Errorf("unknown fault %q: use %s, or none", kind, strings.Join(Kinds(), ", "))
		}
	}
	return list, nil
}

// Pace is the mean time between two faults.
const Pace = 5 * time.Second

// A Fault is one entry of a schedule. Pick selects the target among those of its kind.
type Fault struct {
	At    time.Duration // since the start
	Kind  string
	Pick  int
	Lasts time.Duration
	Delay time.Duration // of data, for Slow
	Rate  int           // bytes per second, for Narrow
	Ahead time.Duration // of a clock, in seconds, for Clock; negative means behind
}

// A wall clock is at least minAhead and at most maxAhead ahead or behind. The product tolerates a minute between two
// clocks, and each of the two can have the fault.
const (
	minAhead = 2 * time.Second
	maxAhead = 30 * time.Second
)

// NewSchedule returns the faults of a seed in the order of their times. Each kind except Restore occurs before one is
// repeated.
func NewSchedule(seed uint64, duration time.Duration, kinds []string) []Fault {
	kinds = slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool { return kind == Restore })
	dice := rand.New(rand.NewPCG(seed, 3)) //nolint:gosec // a schedule, not a secret
	var list []Fault
	var next []string
	// A fault needs some of the workload before it.
	for at := Pace; len(kinds) > 0 && at < duration; at += Pace/2 + time.Duration(dice.Int64N(int64(Pace))) {
		if len(next) == 0 {
			next = slices.Clone(kinds)
			dice.Shuffle(len(next), func(i, j int) { next[i], next[j] = next[j], next[i] })
		}
		f := Fault{
			At: at, Kind: next[0], Pick: dice.IntN(1 << 20), Lasts: between(dice, 3*time.Second, 15*time.Second),
			Delay: between(dice, 20*time.Millisecond, 500*time.Millisecond), Rate: 4<<10 + dice.IntN(60<<10),
		}
		switch f.Kind {
		case Freeze:
			f.Lasts = between(dice, 5*time.Second, 30*time.Second)
		case Clock:
			f.Lasts = between(dice, 5*time.Second, 30*time.Second)
			f.Ahead = between(dice, minAhead, maxAhead).Round(time.Second)
			if dice.IntN(2) == 0 {
				f.Ahead = -f.Ahead
			}
		}
		next = next[1:]
		list = append(list, f)
	}
	return list
}

func between(dice *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(dice.Int64N(int64(high-low)))
}

// Hold begins a fault, waits as long as it lasts or until the schedule ends, and ends it. It also calls end
// if begin fails, because a part may have begun.
func (f Fault) Hold(schedule context.Context, begin, end func() error) error {
	err := begin()
	if err == nil {
		_ = backoff.Sleep(schedule, f.Lasts) // the end of the schedule ends the fault, too
	}
	return errors.Join(err, end())
}
