package instance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/sentinel"
)

const shardingAuto = v1alpha1.ShardingAuto

// stopped says whether the sentinel has ended.
func (r *running) stopped() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// parts are what a sentinel is made of.
type parts struct {
	wanted  *Wanted
	api     *apiConnection
	broker  *brokerConnection
	trouble chan error // why the sentinel can not go on; the first word counts
}

// report says that the sentinel can not go on.
func (p *parts) report(err error) {
	select {
	case p.trouble <- err:
	default:
	}
}

// release lets go of the connections that kept does not have.
func (p *parts) release(kept *running) {
	if p.api != nil && (kept == nil || kept.api != p.api) {
		p.api.CloseIdle()
	}
	if p.broker != nil && (kept == nil || kept.broker != p.broker) {
		p.broker.close()
	}
}

// failed has an element when the sentinel can not go on. None has none.
func (r *running) failed() <-chan error {
	if r == nil {
		return nil
	}
	return r.trouble
}

// A running is a sentinel that was started.
type running struct {
	*parts
	sentinel *sentinel.Sentinel
	begun    time.Time
	cancel   context.CancelFunc
	done     chan struct{}
	broken   bool // it failed and is not to be trusted
}

// stop ends the sentinel and waits for what it has under way. It may be called
// again.
func (r *running) stop() {
	r.cancel()
	<-r.done
}

// make makes a sentinel.
func (i *Instance) make(ctx context.Context, p *parts, deps sentinel.Deps) (*sentinel.Sentinel, error) {
	sharding := p.wanted.Settings.Sharding
	switch sharding.Mode {
	case v1alpha1.ShardingStatic:
		part, err := i.deps.NewPart(sharding.Count, sharding.Index)
		if err != nil {
			return nil, err
		}
		deps.Shard, deps.Part = part, fmt.Sprintf("part %d/%d", sharding.Index, sharding.Count)
	case v1alpha1.ShardingAuto:
		if err := i.gather(ctx); err != nil {
			return nil, err
		}
		deps.Shard = i.group.Group
	}
	return sentinel.New(p.wanted.Settings.Sentinel, deps)
}

// try makes a sentinel that is not used, for what may be wrong with cfg.
func (*Instance) try(cfg sentinel.Config) error {
	_, err := sentinel.New(cfg, sentinel.Deps{API: &apiConnection{}, Publisher: &brokerConnection{}})
	return err
}

// start makes the sentinel of p and runs it.
func (i *Instance) start(ctx context.Context, p *parts, predecessor *sentinel.Sentinel) (*running, error) {
	s, err := i.make(ctx, p, sentinel.Deps{
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
	p.api.set(p.report)
	p.broker.set(p.report)
	if err := p.broker.end(); err != nil {
		p.report(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &running{parts: p, sentinel: s, begun: time.Now(), cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		defer func() {
			if value := recover(); value != nil {
				p.report(caught("the sentinel", value))
			}
		}()
		_ = s.Run(ctx) // it ends with ctx, and then without an error
	}()
	return r, nil
}

// A groupRun is a group that runs.
type groupRun struct {
	Group
	stop  context.CancelFunc
	ended chan error // why it ended by itself
	done  chan struct{}
}

// failed has an element when the group has ended by itself. None has none.
func (g *groupRun) failed() <-chan error {
	if g == nil {
		return nil
	}
	return g.ended
}

// errGroupEnded is why a sentinel can not go on whose group has ended by itself.
var errGroupEnded = errors.New("shard group stopped unexpectedly")

// gather has this replica join the others, if it has not.
func (i *Instance) gather(ctx context.Context) error {
	if i.group != nil {
		return nil
	}
	group, err := i.deps.NewGroup()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	g := &groupRun{Group: group, stop: stop, ended: make(chan error, 1), done: make(chan struct{})}
	go func() {
		defer close(g.done)
		if err := g.run(ctx); ctx.Err() == nil {
			g.ended <- errors.Join(errGroupEnded, err)
		}
	}()
	i.mu.Lock()
	i.group = g
	i.mu.Unlock()
	return nil
}

// run is Run, of which a panic is an error.
func (g *groupRun) run(ctx context.Context) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = caught("the group", value)
		}
	}()
	return g.Run(ctx)
}

// scatter has this replica leave the others. Its sentinel has stopped.
func (i *Instance) scatter() {
	if i.group == nil {
		return
	}
	i.group.stop()
	<-i.group.done
	i.mu.Lock()
	i.group = nil
	i.mu.Unlock()
}
