package history

import (
	"slices"
	"time"
)

// A Rate is a configured limit of the calls of each replica of a program: Burst calls at once, and PerSecond
// calls per second in the long run.
type Rate struct {
	Replicas  int
	PerSecond float64
	Burst     float64
}

// Programs whose rate is checked.
const (
	sentinelProgram = "sentinel"
	workerProgram   = "cluster-worker"
)

// freshBudget is how long a replica that was started or continued again may use its unused burst.
const freshBudget = time.Minute

// CheckRates checks R3: neither the events of the sentinels nor the writes of the cluster-workers exceed the
// configured rates, also when all is due at once after a fault. Each replica that starts or continues after a
// fault has an unused burst. A sentinel whose clock is set back shows some times again.
func CheckRates(cfg Config, records []Record) Result {
	res := Result{Promise: "R3 no storm after faults"}
	clocks, sentinels := readClocks(cfg, records), cfg.Rates[sentinelProgram]
	firstDelivery := map[string]*Event{} // by id; one that is delivered again is no new event
	var writes []time.Time
	extra := map[string][]allowance{} // by program
	allowBurst := func(process string, start time.Time) {
		program := programOf(process)
		extra[program] = append(extra[program], allowance{start, start.Add(freshBudget), cfg.Rates[program].Burst})
	}
	for _, r := range records {
		switch {
		case r.Event != nil && !r.Event.Published.IsZero():
			if before := firstDelivery[r.Event.ID]; before == nil || r.Event.Published.Before(before.Published) {
				firstDelivery[r.Event.ID] = r.Event
			}
		case r.Write != nil:
			writes = append(writes, r.Write.Start)
		case r.Fault != nil && r.Fault.Kind == ClockFault:
			from, to := clocks.reachOf(r.Fault)
			if clockProgramOf(r.Fault) == sentinelProgram {
				extra[sentinelProgram] = append(
					extra[sentinelProgram],
					allowance{from, to, sentinels.Burst + r.Fault.Ahead.Abs().Seconds()*sentinels.PerSecond},
				)
			}
		case r.Fault != nil && r.Fault.Kind != "restart": // which is a stop
			allowBurst(r.Fault.Target, r.Fault.End)
		case r.Exit != nil:
			allowBurst(r.Exit.Process, r.At)
		case r.Stop != nil:
			allowBurst(r.Stop.Process, r.At)
		}
	}
	published := map[string][]time.Time{} // by collection, as each has its sentinels
	for _, e := range firstDelivery {
		published[e.Collection] = append(published[e.Collection], e.Published)
	}
	for collection, times := range published {
		checkRate(&res, sentinels, times, extra[sentinelProgram], "events about "+collection)
	}
	checkRate(&res, cfg.Rates[workerProgram], writes, extra[workerProgram], "writes of Shoots")
	return res
}

// An allowance is a number of calls beyond the limit in a span of time.
type allowance struct {
	from, to time.Time
	calls    float64
}

// checkRate compares calls with a bucket that the calls fill and the rate empties. It reports the highest
// level above the limit.
func checkRate(res *Result, limit Rate, calls []time.Time, extra []allowance, callsName string) {
	res.Checked += len(calls)
	slices.SortFunc(calls, time.Time.Compare)
	replicas := float64(limit.Replicas)
	var level, worst, allowed float64
	var last, worstAt time.Time
	for _, at := range calls {
		level = max(0, level-at.Sub(last).Seconds()*limit.PerSecond*replicas) + 1
		last = at
		most := limit.Burst * replicas
		for _, a := range extra {
			if !at.Before(a.from) && at.Before(a.to) {
				most += a.calls
			}
		}
		if level-most > worst {
			worst, worstAt, allowed = level-most, at, most
		}
	}
	if worst > 0 {
		res.fail("at %s there were %.1f more %s than the limit of %d replicas, which is %.0f at once and %.1f per second",
			stamp(worstAt), worst, callsName, limit.Replicas, allowed, limit.PerSecond*replicas)
	}
}
