// Package shardbench measures how long it takes until the share of a replica
// that was killed is another's. Its parts also serve tests of groups on a real
// store.
package shardbench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/fleetloop/fleetloop/internal/kube/leases/member"
	"github.com/fleetloop/fleetloop/internal/sentinel/shard"
)

const (
	replicas = 3
	rounds   = 3
	keys     = 300
	poll     = 5 * time.Millisecond
)

// A Member is one replica of a group, running.
type Member struct {
	*shard.Group
	link   *link
	cancel context.CancelFunc
	done   chan error
}

// Join starts a member. Kill it, or have it Leave.
func Join(ctx context.Context, cfg shard.GroupConfig, deps shard.Deps) (*Member, error) {
	m := &Member{link: &link{to: deps.Leases}, done: make(chan error, 1)}
	deps.Leases = m.link
	var err error
	if m.Group, err = shard.NewGroup(cfg, deps); err != nil {
		return nil, err
	}
	ctx, m.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go func() { m.done <- m.Run(ctx) }()
	return m, nil
}

// Leave stops the member as a process that is asked to, and waits for it.
func (m *Member) Leave() error {
	m.cancel()
	return <-m.done
}

// Kill is as if the process of the member were killed: from now on nothing
// comes of it. Await waits for what is left.
func (m *Member) Kill() {
	m.link.dead.Store(true)
	m.cancel()
}

// Await waits until a member that was killed has ended.
func (m *Member) Await() error { return <-m.done }

// Owns is false for one that was killed.
func (m *Member) Owns(id []byte) bool { return !m.link.dead.Load() && m.Group.Owns(id) }

// A link leads to the store until its process is dead.
type link struct {
	to   shard.Leases
	dead atomic.Bool
}

var errDead = errors.New("the process was killed")

// Watch is the store's.
func (l *link) Watch(ctx context.Context, handle func(member.Change)) error {
	if l.dead.Load() {
		return errDead
	}
	return l.to.Watch(ctx, handle)
}

// Put is the store's.
func (l *link) Put(ctx context.Context, r member.Record) (member.Record, error) {
	if l.dead.Load() {
		return member.Record{}, errDead
	}
	return l.to.Put(ctx, r)
}

// Delete is the store's.
func (l *link) Delete(ctx context.Context, r member.Record) error {
	if l.dead.Load() {
		return errDead
	}
	return l.to.Delete(ctx, r)
}

// IDs are some that members share out among themselves.
func IDs() (ids [][]byte) {
	for i := range keys {
		ids = append(ids, fmt.Appendf(nil, "01a1fa4c-b84e-72b4-8a15-%012x", i))
	}
	return ids
}

// Shared says whether each of ids has one owner among members. An id with two
// is an ErrTwice.
func Shared(members []*Member, ids [][]byte) error {
	var missing error
	for _, id := range ids {
		owners := 0
		for _, m := range members {
			if m.Owns(id) {
				owners++
			}
		}
		switch {
		case owners > 1:
			return fmt.Errorf("%q: %w", id, ErrTwice)
		case owners == 0:
			missing = fmt.Errorf("%q is owned by nobody", id)
		}
	}
	return missing
}

// ErrTwice says that two members own the same.
var ErrTwice = errors.New("owned by two members at a time")

// Await waits until ids are shared out among members, and fails if one of
// them ever has two owners.
func Await(ctx context.Context, members []*Member, ids [][]byte) error {
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for {
		err := Shared(members, ids)
		if err == nil || errors.Is(err, ErrTwice) {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		}
	}
}

// Failover gives the longest time, of a few, from when a replica is killed
// until all that it owned is owned by others. open gives each replica a client
// of a group's records, and a function that gives it up.
func Failover(ctx context.Context, progress io.Writer, open func(group string) (leases shard.Leases, done func(), err error)) (longest time.Duration, err error) {
	for round := range rounds {
		took, err := measureFailover(ctx, round, open)
		if err != nil {
			return 0, err
		}
		_, _ = fmt.Fprintf(progress, "what a replica owned was another's %s after it was killed\n", took)
		longest = max(longest, took)
	}
	return longest, nil
}

func measureFailover(ctx context.Context, round int, open func(group string) (shard.Leases, func(), error)) (took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	var members []*Member
	var killed *Member
	defer func() {
		for _, m := range members {
			err = errors.Join(err, m.Leave())
		}
		if killed != nil {
			err = errors.Join(err, killed.Await())
		}
	}()
	for i := range replicas {
		group := fmt.Sprint("failover-", round)
		l, done, err := open(group)
		if err != nil {
			return 0, err
		}
		defer done()
		cfg := shard.GroupConfig{Name: group, Identity: fmt.Sprint("replica-", i)}
		m, err := Join(ctx, cfg, shard.Deps{Leases: l})
		if err != nil {
			return 0, err
		}
		members = append(members, m)
	}
	if err := awaitMembers(ctx, members); err != nil {
		return 0, err
	}
	// At another moment between two of its writes in each round.
	pause := time.NewTimer(time.Duration(round) * 700 * time.Millisecond)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	killed, members = members[0], members[1:]
	begin := time.Now()
	killed.Kill()
	err = Await(ctx, members, IDs())
	return time.Since(begin), err
}

// awaitMembers waits until members have shared out all ids, and each knows all.
func awaitMembers(ctx context.Context, members []*Member) error {
	for _, m := range members {
		for len(m.Members()) != len(members) || m.Ready() != nil {
			pause := time.NewTimer(poll)
			select {
			case <-pause.C:
			case <-ctx.Done():
				return errors.Join(m.Ready(), context.Cause(ctx))
			}
		}
	}
	return Await(ctx, members, IDs())
}
