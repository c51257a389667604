package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fleetloop/fleetloop/devstack/proof/history"
)

// Kinds of faults.
const (
	faultKill     = "kill"     // kill -9
	faultFreeze   = "freeze"   // SIGSTOP, then SIGCONT
	faultRestart  = "restart"  // SIGTERM and a new start
	faultCut      = "cut"      // connections break, and new ones are refused for some time
	faultSlow     = "slow"     // each piece of data is delayed
	faultNarrow   = "narrow"   // each connection has little bandwidth
	faultHalfOpen = "halfopen" // connections stay open and transport nothing; new ones work
	faultBroker   = "broker"   // one NATS server is down for some time
	faultFailover = "failover" // the primary database dies, and the standby takes over
	faultHost     = "host"     // the API server of the host cluster, and with it that of Gardener, is down
	faultGarden   = "garden"   // the API server of Gardener is down
)

func faultKinds() []string {
	return []string{
		faultKill, faultFreeze, faultRestart, faultCut, faultSlow, faultNarrow, faultHalfOpen, faultBroker, faultFailover, faultHost, faultGarden,
	}
}

// faultPace is the mean time between two faults.
const faultPace = 5 * time.Second

func parseFaults(text string) ([]string, error) {
	switch text {
	case "":
		return faultKinds(), nil
	case "none":
		return nil, nil
	}
	list := strings.Split(text, ",")
	for _, kind := range list {
		if !slices.Contains(faultKinds(), kind) {
			return nil, fmt.Errorf("unknown fault %q: use %s, or none", kind, strings.Join(faultKinds(), ", "))
		}
	}
	return list, nil
}

// A scheduledFault is one entry of the schedule. pick selects the target among those of its kind.
type scheduledFault struct {
	at    time.Duration
	kind  string
	pick  int
	lasts time.Duration
	delay time.Duration // of data, for faultSlow
	rate  int           // bytes per second, for faultNarrow
}

// newFaultSchedule returns the faults of a seed. Each kind occurs before one is repeated.
func newFaultSchedule(p plan) []scheduledFault {
	dice := rand.New(rand.NewPCG(p.seed, 3)) //nolint:gosec // a schedule, not a secret
	var list []scheduledFault
	var kinds []string
	// A fault needs some of the workload before it.
	for at := faultPace; len(p.faults) > 0 && at < p.duration; at += faultPace/2 + time.Duration(dice.Int64N(int64(faultPace))) {
		if len(kinds) == 0 {
			kinds = slices.Clone(p.faults)
			dice.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
		}
		f := scheduledFault{
			at: at, kind: kinds[0], pick: dice.IntN(1 << 20), lasts: between(dice, 3*time.Second, 15*time.Second),
			delay: between(dice, 20*time.Millisecond, 500*time.Millisecond), rate: 4<<10 + dice.IntN(60<<10),
		}
		if f.kind == faultFreeze {
			f.lasts = between(dice, 5*time.Second, 30*time.Second)
		}
		kinds = kinds[1:]
		list = append(list, f)
	}
	return list
}

func between(dice *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(dice.Int64N(int64(high-low)))
}

// An injector injects faults. A target has one fault at a time; a second one waits.
type injector struct {
	topology *topology

	mu    sync.Mutex
	locks map[string]*sync.Mutex
	count int
}

func newInjector(t *topology) *injector {
	return &injector{topology: t, locks: map[string]*sync.Mutex{}}
}

// run injects the faults of a schedule until the duration has passed, and returns when all have ended.
// Faults that only wait end early then.
func (i *injector) run(all context.Context, duration time.Duration, schedule []scheduledFault) {
	ctx, cancel := context.WithTimeout(all, duration)
	defer cancel()
	var running sync.WaitGroup
	defer running.Wait()
	began := time.Now()
	for _, f := range schedule {
		if !pauseFor(ctx, time.Until(began.Add(f.at))) {
			return
		}
		running.Go(func() { i.inject(all, ctx, f) })
	}
}

func (i *injector) lockOf(target string) *sync.Mutex {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.locks[target] == nil {
		i.locks[target] = &sync.Mutex{}
	}
	return i.locks[target]
}

func (i *injector) injected() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.count
}

// inject injects one fault and records it. It begins nothing after the end of schedule, and completes
// what it began.
func (i *injector) inject(ctx, schedule context.Context, f scheduledFault) {
	target, lock, act := i.prepare(f)
	mutex := i.lockOf(lock)
	mutex.Lock()
	defer mutex.Unlock()
	if schedule.Err() != nil {
		return
	}
	i.mu.Lock()
	i.count++
	i.mu.Unlock()
	rec := &history.Fault{Kind: f.kind, Target: target, Start: time.Now()}
	if err := act(ctx, schedule); err != nil && ctx.Err() == nil {
		rec.Error = err.Error()
	}
	rec.End = time.Now()
	i.topology.file.Add(history.Record{Fault: rec})
}

// prepare selects the target of a fault, the lock that it needs, and what to do.
func (i *injector) prepare(f scheduledFault) (target, lock string, act func(ctx, schedule context.Context) error) {
	t := i.topology
	switch f.kind {
	case faultCut, faultSlow, faultNarrow, faultHalfOpen:
		links := append(slices.Clone(t.proxies), t.database.proxies[:]...)
		p := links[f.pick%len(links)]
		return p.name, "link " + p.name, func(_, schedule context.Context) error {
			p.disturb(schedule, f)
			return nil
		}
	case faultBroker:
		list := t.groups["nats"]
		p := list[f.pick%len(list)]
		// A second server that is down would be a loss of the quorum.
		return p.name, "nats", func(ctx, schedule context.Context) error {
			if err := p.kill(true); err != nil {
				return err
			}
			pauseFor(schedule, f.lasts)
			return p.unhold(ctx)
		}
	case faultFailover:
		return "postgresql", "postgresql", func(ctx, _ context.Context) error { return t.database.failOver(ctx) }
	case faultHost:
		return "kube-apiserver", "kubernetes", func(ctx, schedule context.Context) error {
			return errors.Join(t.kube.StopAPIServer(), waitThen(schedule, f.lasts, func() error { return t.kube.StartAPIServer(ctx) }))
		}
	case faultGarden:
		return "gardener-apiserver", "kubernetes", func(ctx, schedule context.Context) error {
			return errors.Join(t.garden.StopAPIServer(), waitThen(schedule, f.lasts, func() error { return t.garden.StartAPIServer(ctx) }))
		}
	}
	list := t.processes(components()...)
	p := list[f.pick%len(list)]
	return p.name, p.name, func(_, schedule context.Context) error { return p.disturb(schedule, f) }
}

// waitThen calls f after a time, or earlier if ctx ends.
func waitThen(ctx context.Context, d time.Duration, f func() error) error {
	pauseFor(ctx, d)
	return f()
}

// disturb injects a fault into a process.
func (p *process) disturb(ctx context.Context, f scheduledFault) error {
	switch f.kind {
	case faultRestart:
		return p.terminate()
	case faultFreeze:
		if err := p.pause(); err != nil {
			return err
		}
		pauseFor(ctx, f.lasts)
		return p.resume()
	default:
		return p.kill(false)
	}
}

// disturb injects a fault into a link.
func (p *proxy) disturb(ctx context.Context, f scheduledFault) {
	switch f.kind {
	case faultSlow:
		p.setDelay(f.delay)
		defer p.setDelay(0)
	case faultNarrow:
		p.setRate(f.rate)
		defer p.setRate(0)
	case faultHalfOpen:
		p.silence()
		return
	default:
		p.setCut(true)
		defer p.setCut(false)
	}
	pauseFor(ctx, f.lasts)
}
