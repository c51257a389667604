package main

import (
	"context"
	"errors"
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
	case faults.Disk:
		if index := f.Pick % (brokerServers + 1); index < brokerServers {
			return faults.Target{Name: t.groups[t.broker][index].name, Lock: t.broker, Inject: func(ctx, schedule context.Context) error { return t.fillBrokerDiskThenRestart(ctx, schedule, index, f) }}
		}
		return faults.Target{Name: "postgresql", Lock: "postgresql", Inject: func(ctx, schedule context.Context) error {
			return t.database.fillPrimaryDiskAndRecover(ctx, schedule, f)
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
	case faults.Clock:
		return t.chooseClock(f)
	case faults.Tokens:
		return faults.Target{Name: "tokens", Lock: "tokens", Inject: func(ctx, schedule context.Context) error { return t.replaceTokensAndRevokeOld(ctx, schedule, f) }}
	case faults.Certificate:
		return faults.Target{Name: "certificate", Lock: "certificate", Inject: func(ctx, _ context.Context) error { return t.rotateCertificateAndWait(ctx) }}
	case faults.Settings:
		return faults.Target{Name: "sentinelconfigs", Lock: "sentinelconfigs", Inject: func(ctx, schedule context.Context) error {
			edits := settingsEdits()
			edit := edits[f.Pick%len(edits)]
			return f.Hold(schedule, func() error { return t.patchAllSentinelConfigs(ctx, edit) }, func() error { return t.patchAllSentinelConfigs(ctx, defaultSettings) })
		}}
	}
	list := t.processes(components()...)
	p := list[f.Pick%len(list)]
	return faults.Target{Name: p.name, Lock: p.name, Inject: func(_, schedule context.Context) error { return p.disturb(schedule, f) }}
}

// chooseClock returns the clock of a process or, for one of databaseShare, that of PostgreSQL.
func (t *topology) chooseClock(f faults.Fault) faults.Target {
	const databaseShare = 4
	list := t.processes(components()...)
	p := list[f.Pick/databaseShare%len(list)]
	target, c := faults.Target{Name: p.name, Lock: p.name}, p.clock
	if f.Pick%databaseShare == 0 && t.databaseClock != "" {
		target, c = faults.Target{Name: "postgresql", Lock: "postgresql"}, t.databaseClock
	}
	target.Inject = func(_, schedule context.Context) error {
		return f.Hold(schedule, func() error { return c.set(f.Ahead) }, func() error { return c.set(0) })
	}
	return target
}

// defaultSettings are the settings that settingsEdits changes.
const defaultSettings = `{"spec": {"pollInterval": "5s", "source": {"mode": "auto"}}}`

// settingsEdits are changes of a SentinelConfig that lose nothing.
func settingsEdits() []string {
	return []string{`{"spec": {"pollInterval": "4s"}}`, `{"spec": {"source": {"mode": "cursor"}}}`, `{"spec": {"source": {"mode": "sweep"}}}`}
}

// patchAllSentinelConfigs patches all SentinelConfigs.
func (t *topology) patchAllSentinelConfigs(ctx context.Context, patch string) error {
	var errs []error
	for _, collection := range collections() {
		errs = append(errs, t.patchHost(ctx, "sentinelconfig", collection, patch))
	}
	return errors.Join(errs...)
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
