package history

import (
	"slices"
	"time"
)

// ClockFault is the kind of a fault that sets a wall clock ahead or behind for some time.
const ClockFault = "clock"

// databaseProgram is the target of faults of PostgreSQL, whose clock gives a resource its times.
const databaseProgram = "postgresql"

// clocks knows when which wall clock was wrong, and by how much.
type clocks struct {
	faults []*Fault
	skew   time.Duration // between clocks that are right, and of the recorded times of a fault
}

func readClocks(cfg Config, records []Record) clocks {
	c := clocks{skew: cfg.ClockSkew}
	for _, r := range records {
		if r.Fault != nil && r.Fault.Kind == ClockFault {
			c.faults = append(c.faults, r.Fault)
		}
	}
	return c
}

// clockProgramOf returns the program whose clock a fault sets.
func clockProgramOf(f *Fault) string {
	if f.Target == databaseProgram {
		return databaseProgram
	}
	return programOf(f.Target)
}

// rightTimes returns the right times at which a replica of one of the programs can have shown a time.
func (c clocks) rightTimes(shown time.Time, programs []string) []time.Time {
	list := []time.Time{shown}
	for _, f := range c.faults {
		right := shown.Add(-f.Ahead)
		wasWrong := !right.Before(f.Start.Add(-c.skew)) && !right.After(f.End.Add(c.skew))
		if wasWrong && slices.Contains(programs, clockProgramOf(f)) {
			list = append(list, right)
		}
	}
	return list
}

// A shownTime is a time that a replica of one of some programs took from its clock. Without programs it is right.
type shownTime struct {
	time.Time
	programs []string
}

func (c clocks) earliest(t shownTime) time.Time {
	return slices.MinFunc(c.rightTimes(t.Time, t.programs), time.Time.Compare)
}

func (c clocks) latest(t shownTime) time.Time {
	return slices.MaxFunc(c.rightTimes(t.Time, t.programs), time.Time.Compare)
}

// latestBefore returns the latest right time, at most limit, at which a replica can have shown t. It returns t itself if
// there is none.
func (c clocks) latestBefore(t shownTime, limit time.Time) time.Time {
	right := slices.DeleteFunc(c.rightTimes(t.Time, t.programs), func(at time.Time) bool { return at.After(limit.Add(c.skew)) })
	if len(right) == 0 {
		return t.Time
	}
	return slices.MaxFunc(right, time.Time.Compare)
}

// isCertain reports whether no clock of the programs was wrong around a time that one of them showed, nor for a while
// before: the program can have taken an earlier time with another clock.
func (c clocks) isCertain(shown time.Time, programs ...string) bool {
	return !slices.ContainsFunc(c.faults, func(f *Fault) bool {
		from, to := c.reachOf(f)
		return !shown.Before(from) && shown.Before(to) && slices.Contains(programs, clockProgramOf(f))
	})
}

// reachOf returns the times that a clock can show from shortly before a fault until a while after it.
func (c clocks) reachOf(f *Fault) (from, to time.Time) {
	reach := f.Ahead.Abs() + c.skew
	return f.Start.Add(-reach), f.End.Add(reach + freshBudget)
}
