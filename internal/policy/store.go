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

// ErrNoPolicy means that no good set was ever loaded.
var ErrNoPolicy = errors.New("no policies are loaded")

// A Store holds the last good set. It is safe for concurrent use: each decision uses one set from
// beginning to end.
type Store struct {
	timeout time.Duration
	trial   time.Duration // CPU time to try a set; zero means DefaultTrialCPUTime
	metrics *Metrics

	loading sync.Mutex // one at a time, or an older set could win
	now     atomic.Pointer[loaded]
	err     atomic.Pointer[error]
}

type loaded struct {
	set *Set
	at  time.Time
}

// NewStore returns a store without a set. timeout limits each decision, zero means DefaultTimeout;
// metrics may be nil.
func NewStore(timeout time.Duration, metrics *Metrics) *Store {
	return &Store{timeout: timeout, metrics: metrics}
}

// LoadPolicies replaces the set if Compile succeeds. Otherwise the last good set stays, with its mode, and
// Status also has the error. After an error that wraps ErrUnfinished, the same files can be loaded
// again. Every failure is counted, unless the caller has cancelled ctx.
func (st *Store) LoadPolicies(ctx context.Context, files map[string]string, mode Mode) error {
	st.loading.Lock()
	defer st.loading.Unlock()
	if mode == "" {
		mode = Enforce
	}
	before := st.now.Load()
	if before != nil && before.set.hash == hashFiles(files) && before.set.mode == mode {
		st.err.Store(nil)
		return nil
	}
	set, err := CompileAndTest(ctx, files, Options{Mode: mode, Timeout: st.timeout, TrialCPUTime: st.trial})
	if err != nil {
		st.err.Store(&err)
		if !errors.Is(ctx.Err(), context.Canceled) { // as at the end of the process
			st.metrics.recordReload(nil, err)
		}
		return err
	}
	st.now.Store(&loaded{set: set, at: time.Now()})
	st.err.Store(nil)
	st.metrics.recordReload(set, nil)
	return nil
}

// ErrTakenAway means that the good set was removed.
var ErrTakenAway = errors.New("the policies were removed")

// UnloadPolicies removes the set: from then on Decide fails. It is meant for policies that were deleted,
// and not for bad ones.
func (st *Store) UnloadPolicies() {
	st.loading.Lock()
	defer st.loading.Unlock()
	gone := ErrTakenAway
	st.now.Store(nil)
	st.err.Store(&gone)
	st.metrics.clearLoadedInfo()
}

// Decide returns the set's decision and hash. An error is never a permission.
func (st *Store) Decide(ctx context.Context, input json.RawMessage, now time.Time) (d Decision, hash string, err error) {
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
	d, v, err := l.set.decideAndReturnInput(ctx, input, now)
	st.metrics.observeDecision(d, v, err, time.Since(begin))
	return d, l.set.hash, err
}

// Status is the state of a store.
type Status struct {
	Hash     string // of the last good set, empty without one
	Mode     Mode
	LoadedAt time.Time
	Names    []string // of its files
	Tests    int      // the number of its tests
	Err      error    // why the last offered set was not accepted, or nil
}

// GetStatus returns the state of the store.
func (st *Store) GetStatus() Status {
	var s Status
	if err := st.err.Load(); err != nil {
		s.Err = *err
	}
	if l := st.now.Load(); l != nil {
		s.Hash, s.Mode, s.LoadedAt, s.Names, s.Tests = l.set.hash, l.set.mode, l.at, slices.Clone(l.set.names), l.set.tests
	}
	return s
}
