package main

import (
	"context"
	"slices"

	"github.com/fleetloop/fleetloop/devstack/proof/faults"
	"github.com/fleetloop/fleetloop/devstack/proof/history"
)

func (t *topology) newInjector() *faults.Injector {
	return faults.NewInjector(t.chooseTarget, func(f history.Fault) { t.file.Add(history.Record{Fault: &f}) })
}

// chooseTarget returns the target of a fault.
func (t *topology) chooseTarget(f faults.Fault) faults.Target {
	switch f.Kind {
	case faults.Cut, faults.Slow, faults.Narrow, faults.HalfOpen:
		links := append(slices.Clone(t.proxies), t.database.proxies[:]...)
		p := links[f.Pick%len(links)]
		return faults.Target{Name: p.Name, Lock: "link " + p.Name, Inject: func(_, schedule context.Context) error { return p.Disturb(schedule, f) }}
	case faults.Broker:
		list := t.groups[t.broker]
		p := list[f.Pick%len(list)]
		// A second server that is down would be a loss of the quorum.
		return faults.Target{Name: p.name, Lock: t.broker, Inject: func(ctx, schedule context.Context) error {
			return f.Hold(schedule, func() error { return p.kill(true) }, func() error { return p.unhold(ctx) })
		}}
	case faults.Failover:
		return faults.Target{Name: "postgresql", Lock: "postgresql", Inject: func(ctx, _ context.Context) error { return t.database.failOver(ctx) }}
	case faults.Host:
		return faults.Target{Name: "kube-apiserver", Lock: "kubernetes", Inject: func(ctx, schedule context.Context) error {
			return f.Hold(schedule, t.kube.StopAPIServer, func() error { return t.kube.StartAPIServer(ctx) })
		}}
	case faults.Garden:
		return faults.Target{Name: "gardener-apiserver", Lock: "kubernetes", Inject: func(ctx, schedule context.Context) error {
			return f.Hold(schedule, t.garden.StopAPIServer, func() error { return t.garden.StartAPIServer(ctx) })
		}}
	}
	list := t.processes(components()...)
	p := list[f.Pick%len(list)]
	return faults.Target{Name: p.name, Lock: p.name, Inject: func(_, schedule context.Context) error { return p.disturb(schedule, f) }}
}

// disturb injects a fault into a process.
func (p *process) disturb(schedule context.Context, f faults.Fault) error {
	switch f.Kind {
	case faults.Restart:
		return p.terminate()
	case faults.Freeze:
		return f.Hold(schedule, p.pause, p.resume)
	default:
		return p.kill(false)
	}
}
