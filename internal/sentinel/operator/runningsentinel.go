package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/sentinel"
)

const shardingAuto = v1alpha1.ShardingAuto

// hasStopped reports whether the sentinel has stopped.
func (r *runningSentinel) hasStopped() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// instanceParts holds the parts of a sentinel.
type instanceParts struct {
	wanted  *WantedConfig
	api     *apiConnection
	broker  *brokerConnection
	trouble chan error // why the sentinel cannot continue; the first error counts
}

// reportFailure reports that the sentinel cannot continue.
func (p *instanceParts) reportFailure(err error) {
	select {
	case p.trouble <- err:
	default:
	}
}

// releaseConnections closes the connections that kept does not use.
func (p *instanceParts) releaseConnections(kept *runningSentinel) {
	if p.api != nil && (kept == nil || kept.api != p.api) {
		p.api.CloseIdle()
	}
	if p.broker != nil && (kept == nil || kept.broker != p.broker) {
		p.broker.closeAndWait()
	}
}

// failures returns a channel that contains an element when the sentinel cannot continue. For no
// sentinel it returns nil.
func (r *runningSentinel) failures() <-chan error {
	if r == nil {
		return nil
	}
	return r.trouble
}

// A runningSentinel is a started sentinel.
type runningSentinel struct {
	*instanceParts
	sentinel *sentinel.Sentinel
	begun    time.Time
	cancel   context.CancelFunc
	done     chan struct{}
	broken   bool // it failed and must not be reused
}

// stopAndWait stops the sentinel and waits for its outstanding work. It may be called again.
func (r *runningSentinel) stopAndWait() {
	r.cancel()
	<-r.done
}

// newSentinelWithShard creates a sentinel.
func (i *Instance) newSentinelWithShard(ctx context.Context, p *instanceParts, deps sentinel.Deps) (*sentinel.Sentinel, error) {
	sharding := p.wanted.Settings.Sharding
	switch sharding.Mode {
	case v1alpha1.ShardingStatic:
		part, err := i.deps.NewPart(sharding.Count, sharding.Index)
		if err != nil {
			return nil, err
		}
		deps.Shard, deps.Part = part, fmt.Sprintf("part %d/%d", sharding.Index, sharding.Count)
	case v1alpha1.ShardingAuto:
		if err := i.joinGroup(ctx); err != nil {
			return nil, err
		}
		deps.Shard = i.group.ReplicaGroup
	}
	return sentinel.New(p.wanted.Settings.Sentinel, deps)
}

// tryConfig creates a sentinel without using it, to find errors in cfg.
func (*Instance) tryConfig(cfg sentinel.Config) error {
	_, err := sentinel.New(cfg, sentinel.Deps{API: &apiConnection{}, Publisher: &brokerConnection{}})
	return err
}

// startSentinel creates the sentinel of p and runs it.
func (i *Instance) startSentinel(ctx context.Context, p *instanceParts, predecessor *sentinel.Sentinel) (*runningSentinel, error) {
	s, err := i.newSentinelWithShard(ctx, p, sentinel.Deps{
		API:         p.api,
		Publisher:   p.broker,
		BrokerType:  string(p.wanted.Settings.Broker.Type),
		Log:         i.log,
		Registerer:  i.deps.Registerer,
		Tracer:      i.deps.Tracer,
		OnPublished: i.deps.OnPublished,
		OnRound:     func(sentinel.Stats) { i.deps.OnChange() },
		Predecessor: predecessor,
	})
	if err != nil {
		return nil, err
	}
	p.api.setReport(p.reportFailure)
	p.broker.setReport(p.reportFailure)
	if err := p.broker.endError(); err != nil {
		p.reportFailure(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &runningSentinel{instanceParts: p, sentinel: s, begun: time.Now(), cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		defer func() {
			if value := recover(); value != nil {
				p.reportFailure(panicError("the sentinel", value))
			}
		}()
		_ = s.Run(ctx) // it ends with ctx, and then without an error
	}()
	return r, nil
}

// A groupRun is a running group.
type groupRun struct {
	ReplicaGroup
	stop  context.CancelFunc
	ended chan error // why it stopped unexpectedly
	done  chan struct{}
}

// failures returns a channel that contains an element when the group has stopped unexpectedly. For
// no group it returns nil.
func (g *groupRun) failures() <-chan error {
	if g == nil {
		return nil
	}
	return g.ended
}

// errGroupEnded is why a sentinel cannot continue after its group has stopped unexpectedly.
var errGroupEnded = errors.New("shard group stopped unexpectedly")

// joinGroup makes this replica join the others, if it has not joined yet.
func (i *Instance) joinGroup(ctx context.Context) error {
	if i.group != nil {
		return nil
	}
	group, err := i.deps.NewGroup()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	g := &groupRun{ReplicaGroup: group, stop: stop, ended: make(chan error, 1), done: make(chan struct{})}
	go func() {
		defer close(g.done)
		if err := g.runGroup(ctx); ctx.Err() == nil {
			g.ended <- errors.Join(errGroupEnded, err)
		}
	}()
	i.mu.Lock()
	i.group = g
	i.mu.Unlock()
	return nil
}

// runGroup calls Run and converts a panic to an error.
func (g *groupRun) runGroup(ctx context.Context) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = panicError("the group", value)
		}
	}()
	return g.Run(ctx)
}

// leaveGroup makes this replica leave the others. Its sentinel has stopped.
func (i *Instance) leaveGroup() {
	if i.group == nil {
		return
	}
	i.group.stop()
	<-i.group.done
	i.mu.Lock()
	i.group = nil
	i.mu.Unlock()
}
