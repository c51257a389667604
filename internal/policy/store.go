package policy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// ErrNoPolicy is that there never was a good set.
var ErrNoPolicy = errors.New("no policies are loaded")

// A Store holds the last good set. It is safe for concurrent use: a decision is
// made by one set from its begin to its end.
type Store struct {
	timeout time.Duration
	trial   time.Duration // CPU time to try a set with; zero is DefaultTrialCPUTime
	metrics *Metrics

	loading sync.Mutex // one at a time, or an older set could win
	now     atomic.Pointer[loaded]
	err     atomic.Pointer[error]
}

type loaded struct {
	set *Set
	at  time.Time
}

// NewStore makes a store without a set. timeout bounds each decision, zero is
// DefaultTimeout; metrics may be nil.
func NewStore(timeout time.Duration, metrics *Metrics) *Store {
	return &Store{timeout: timeout, metrics: metrics}
}

// Load takes a set in if Compile does. If not, the last good one stays, with
// its mode, and the error is in Status as well. After one that wraps ErrUnfinished the
// same files can be loaded again. Every failure is counted, unless the caller has
// cancelled ctx.
func (st *Store) Load(ctx context.Context, files map[string]string, mode Mode) error {
	st.loading.Lock()
	defer st.loading.Unlock()
	if mode == "" {
		mode = Enforce
	}
	before := st.now.Load()
	if before != nil && before.set.hash == hashOf(files) && before.set.mode == mode {
		st.err.Store(nil)
		return nil
	}
	set, err := Compile(ctx, files, Options{Mode: mode, Timeout: st.timeout, TrialCPUTime: st.trial})
	if err != nil {
		st.err.Store(&err)
		if !errors.Is(ctx.Err(), context.Canceled) { // as the end of the process does
			st.metrics.observeReload(nil, err)
		}
		return err
	}
	st.now.Store(&loaded{set: set, at: time.Now()})
	st.err.Store(nil)
	st.metrics.observeReload(set, nil)
	return nil
}

// ErrTakenAway is that there was a good set, and somebody took it away.
var ErrTakenAway = errors.New("the policies were removed")

// Unload lets go of the set: from now on nothing is decided. It is for when
// somebody has taken the policies away, other than for when they are bad.
func (st *Store) Unload() {
	st.loading.Lock()
	defer st.loading.Unlock()
	gone := ErrTakenAway
	st.now.Store(nil)
	st.err.Store(&gone)
	st.metrics.noteUnloaded()
}

// Decide asks the set, and gives the hash of the one that it asked. An error
// means that there is no decision, which is never a leave.
func (st *Store) Decide(ctx context.Context, input json.RawMessage, now time.Time) (Decision, string, error) {
	begin := time.Now()
	l := st.now.Load()
	if l == nil {
		err := ErrNoPolicy
		if why := st.err.Load(); why != nil {
			err = fmt.Errorf("%w: %w", ErrNoPolicy, *why)
		}
		st.metrics.observeDecision(Decision{}, nil, err, time.Since(begin))
		return Decision{}, "", err
	}
	d, v, err := l.set.decideWithInput(ctx, input, now)
	st.metrics.observeDecision(d, v, err, time.Since(begin))
	return d, l.set.hash, err
}

// Status is what a store holds.
type Status struct {
	Hash     string // of the last good set, empty if there is none
	Mode     Mode
	LoadedAt time.Time
	Names    []string // of its files
	Tests    int      // how many tests it brought along
	Err      error    // why the set that was offered last is not it, or nil
}

// Status gives what the store holds.
func (st *Store) Status() Status {
	var s Status
	if err := st.err.Load(); err != nil {
		s.Err = *err
	}
	if l := st.now.Load(); l != nil {
		s.Hash, s.Mode, s.LoadedAt, s.Names, s.Tests = l.set.hash, l.set.mode, l.at, slices.Clone(l.set.names), l.set.tests
	}
	return s
}
