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

// reportFirstFailure reports that the sentinel cannot continue.
func (p *instanceParts) reportFirstFailure(err error) {
	select {
	case p.trouble <- err:
	default:
	}
}

// closeConnectionsExcept closes the connections that kept does not use.
func (p *instanceParts) closeConnectionsExcept(kept *runningSentinel) {
	if p.api != nil && (kept == nil || kept.api != p.api) {
		p.api.CloseIdle()
	}
	if p.broker != nil && (kept == nil || kept.broker != p.broker) {
		p.broker.closeAndWait()
	}
}

// failureChannel returns a channel that contains an element when the sentinel cannot continue. For no
// sentinel it returns nil.
func (r *runningSentinel) failureChannel() <-chan error {
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

// newSentinelWithShard creates a sentinel with the shard of its configuration. It joins the group of
// replicas if they divide the resources among themselves.
func (v *supervisor) newSentinelWithShard(
	ctx context.Context, p *instanceParts, deps sentinel.Deps,
) (*sentinel.Sentinel, error) {
	sharding := p.wanted.Settings.Sharding
	switch sharding.Mode {
	case v1alpha1.ShardingStatic:
		part, err := v.instance.deps.NewPart(sharding.Count, sharding.Index)
		if err != nil {
			return nil, err
		}
		deps.Shard, deps.Part = part, fmt.Sprintf("part %d/%d", sharding.Index, sharding.Count)
	case v1alpha1.ShardingAuto:
		if err := v.startGroupRunIfNone(ctx); err != nil {
			return nil, err
		}
		deps.Shard = v.instance.group.ReplicaGroup
	}
	return sentinel.New(p.wanted.Settings.Sentinel, deps)
}

// startSentinel creates the sentinel of p and runs it.
func (v *supervisor) startSentinel(
	ctx context.Context, p *instanceParts, predecessor *sentinel.Sentinel,
) (*runningSentinel, error) {
	s, err := v.newSentinelWithShard(ctx, p, sentinel.Deps{
		API:         p.api,
		Publisher:   p.broker,
		BrokerType:  string(p.wanted.Settings.Broker.Type),
		Log:         v.log,
		Registerer:  v.instance.deps.Registerer,
		Tracer:      v.instance.deps.Tracer,
		OnPublished: v.instance.deps.OnPublished,
		OnRound:     func(sentinel.Stats) { v.instance.deps.OnChange() },
		Predecessor: predecessor,
	})
	if err != nil {
		return nil, err
	}
	p.api.setReport(p.reportFirstFailure)
	p.broker.setReport(p.reportFirstFailure)
	if err := p.broker.unexpectedEndError(); err != nil { // it stopped before setReport
		p.reportFirstFailure(err)
	}

	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &runningSentinel{
		instanceParts: p,
		sentinel:      s,
		begun:         time.Now(),
		cancel:        cancel,
		done:          make(chan struct{}),
	}
	go func() {
		defer close(r.done)
		err := callRecoveringPanic("the sentinel", func() error { return s.Run(ctx) })
		if err != nil { // otherwise it ended with ctx
			p.reportFirstFailure(err)
		}
	}()
	return r, nil
}

// validateConfig creates a sentinel without using it, to find errors in cfg.
func validateConfig(cfg sentinel.Config) error {
	_, err := sentinel.New(cfg, sentinel.Deps{API: &apiConnection{}, Publisher: &brokerConnection{}})
	return err
}

// A groupRun is a running group.
type groupRun struct {
	ReplicaGroup
	stop  context.CancelFunc
	ended chan error // why it stopped unexpectedly
	done  chan struct{}
}

// failureChannel returns a channel that contains an element when the group has stopped
// unexpectedly. For no group it returns nil.
func (g *groupRun) failureChannel() <-chan error {
	if g == nil {
		return nil
	}
	return g.ended
}

// errGroupEnded is why a sentinel cannot continue after its group has stopped unexpectedly.
var errGroupEnded = errors.New("shard group stopped unexpectedly")

// startGroupRunIfNone makes this replica join the others, if it has not joined yet.
func (v *supervisor) startGroupRunIfNone(ctx context.Context) error {
	if v.instance.group != nil {
		return nil
	}
	group, err := v.instance.deps.NewGroup()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	g := &groupRun{ReplicaGroup: group, stop: stop, ended: make(chan error, 1), done: make(chan struct{})}
	go func() {
		defer close(g.done)
		err := callRecoveringPanic("the group", func() error { return g.Run(ctx) })
		if ctx.Err() == nil {
			g.ended <- errors.Join(errGroupEnded, err)
		}
	}()
	v.instance.mu.Lock()
	v.instance.group = g
	v.instance.mu.Unlock()
	return nil
}

// leaveGroupAndWait makes this replica leave the others. Its sentinel has stopped.
func (v *supervisor) leaveGroupAndWait() {
	if v.instance.group == nil {
		return
	}
	v.instance.group.stop()
	<-v.instance.group.done
	v.instance.mu.Lock()
	v.instance.group = nil
	v.instance.mu.Unlock()
}
