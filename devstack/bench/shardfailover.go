package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/fleetloop/fleetloop/internal/sentinel/shard"
)

const (
	replicas = 3
	rounds   = 3
	keys     = 300
	poll     = 5 * time.Millisecond
)

// A shardMember is a running replica of a group.
type shardMember struct {
	*shard.Group
	link   *memberLink
	cancel context.CancelFunc
	done   chan error
}

// startShardMember starts a member. End it with Kill or Leave.
func startShardMember(ctx context.Context, cfg shard.GroupConfig, deps shard.Deps) (*shardMember, error) {
	m := &shardMember{link: &memberLink{to: deps.Leases}, done: make(chan error, 1)}
	deps.Leases = m.link
	var err error
	if m.Group, err = shard.NewGroup(cfg, deps); err != nil {
		return nil, err
	}
	ctx, m.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go func() { m.done <- m.Run(ctx) }()
	return m, nil
}

// Leave stops the member as an orderly shutdown of its process would, and waits for its end.
func (m *shardMember) Leave() error {
	m.cancel()
	return <-m.done
}

// Kill simulates a kill of the member's process: from now on the member has no effect. Await waits
// for its remaining goroutines.
func (m *shardMember) Kill() {
	m.link.dead.Store(true)
	m.cancel()
}

// WaitUntilEnded waits until a killed member has ended.
func (m *shardMember) WaitUntilEnded() error { return <-m.done }

// Owns returns false for a killed member.
func (m *shardMember) Owns(id []byte) bool { return !m.link.dead.Load() && m.Group.Owns(id) }

// A memberLink is the connection to the store until the process is dead.
type memberLink struct {
	to   shard.LeaseStore
	dead atomic.Bool
}

var errDead = errors.New("the process was killed")

// Watch calls Watch of the store.
func (l *memberLink) Watch(ctx context.Context, handle func(shard.LeaseChange)) error {
	if l.dead.Load() {
		return errDead
	}
	return l.to.Watch(ctx, handle)
}

// Put calls Put of the store.
func (l *memberLink) Put(ctx context.Context, r shard.Record) (shard.Record, error) {
	if l.dead.Load() {
		return shard.Record{}, errDead
	}
	return l.to.Put(ctx, r)
}

// Delete calls Delete of the store.
func (l *memberLink) Delete(ctx context.Context, r shard.Record) error {
	if l.dead.Load() {
		return errDead
	}
	return l.to.Delete(ctx, r)
}

// listShardIDs returns ids for members to divide.
func listShardIDs() (ids [][]byte) {
	for i := range keys {
		ids = append(ids, fmt.Appendf(nil, "01a1fa4c-b84e-72b4-8a15-%012x", i))
	}
	return ids
}

// checkOwnedOnce checks that each of ids has one owner among members. An id with two owners is an errOwnedTwice.
func checkOwnedOnce(members []*shardMember, ids [][]byte) error {
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
			return fmt.Errorf("%q: %w", id, errOwnedTwice)
		case owners == 0:
			missing = fmt.Errorf("%q is owned by nobody", id)
		}
	}
	return missing
}

// errOwnedTwice means that two members own the same resource.
var errOwnedTwice = errors.New("owned by two members at a time")

// awaitOwnedOnce waits until ids are divided among members, and fails if one of them ever has two owners.
func awaitOwnedOnce(ctx context.Context, members []*shardMember, ids [][]byte) error {
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for {
		err := checkOwnedOnce(members, ids)
		if err == nil || errors.Is(err, errOwnedTwice) {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		}
	}
}

// measureFailovers returns the longest time, in a few rounds, from the kill of a replica until others own
// its whole share. open returns a client of a group's records for each replica, and a function that
// releases it.
func measureFailovers(
	ctx context.Context, progress io.Writer, open func(group string) (l shard.LeaseStore, done func(), err error),
) (longest time.Duration, err error) {
	for round := range rounds {
		took, err := measureFailoverRound(ctx, round, open)
		if err != nil {
			return 0, err
		}
		_, _ = fmt.Fprintf(progress, "what a replica owned was another's %s after it was killed\n", took)
		longest = max(longest, took)
	}
	return longest, nil
}

func measureFailoverRound(
	ctx context.Context, round int, open func(group string) (shard.LeaseStore, func(), error),
) (took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	var members []*shardMember
	var killed *shardMember
	defer func() {
		for _, m := range members {
			err = errors.Join(err, m.Leave())
		}
		if killed != nil {
			err = errors.Join(err, killed.WaitUntilEnded())
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
		m, err := startShardMember(ctx, cfg, shard.Deps{Leases: l})
		if err != nil {
			return 0, err
		}
		members = append(members, m)
	}
	if err := awaitMembers(ctx, members); err != nil {
		return 0, err
	}
	// Vary the moment between two of its writes in each round.
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
	err = awaitOwnedOnce(ctx, members, listShardIDs())
	return time.Since(begin), err
}

// awaitMembers waits until members have divided all ids, and each knows all members.
func awaitMembers(ctx context.Context, members []*shardMember) error {
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
	return awaitOwnedOnce(ctx, members, listShardIDs())
}
