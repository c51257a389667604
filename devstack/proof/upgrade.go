package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/fleetloop/fleetloop/devstack/proof/history"
)

const (
	upgradeKind = "upgrade" // kind of the recorded fault

	// besideTime is how long both releases run.
	besideTime = 3 * time.Second
	// oldBinaryTime is how long the older release alone runs on the newer schema. The sentinels list the
	// clusters every five seconds.
	oldBinaryTime = 6 * time.Second
	// replaceBound is the longest time until a new process is ready on a busy machine.
	replaceBound = time.Minute
	// enforceDelay replaces 30 seconds, the default time that all API servers need to enforce new
	// admission policies. The single API server of a proof needs less, and executions wait for it.
	enforceDelay = "2s"
)

// components are the groups of processes of the product, in any order.
func components() []string {
	return []string{"fleet-api", "sentinel", "adapter", "cluster-worker", "execution-controller", "node-fault-controller"}
}

// runUpgrade rolls from the previous release to this one, back and forward again, evenly over the
// duration.
func (t *topology) runUpgrade(ctx context.Context, duration time.Duration) error {
	began := time.Now()
	for i, step := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"the definitions and the schema of this release", t.applyCRDsMigrateAndCheckReady},
		{"forward", func(ctx context.Context) error { return t.rollTo(ctx, t.latest) }},
		{"back", func(ctx context.Context) error { return t.rollTo(ctx, t.previous) }},
		{"forward again", func(ctx context.Context) error { return t.rollTo(ctx, t.latest) }},
	} {
		// Users are active before each step.
		if !pauseFor(ctx, time.Until(began.Add(duration*time.Duration(i+1)/6))) {
			return context.Cause(ctx)
		}
		rec := &history.Fault{Kind: upgradeKind, Target: step.name, Start: time.Now()}
		if err := step.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		rec.End = time.Now()
		t.file.Add(history.Record{Fault: rec})
		t.log.InfoContext(ctx, "upgrade step done", "step", step.name, "took", rec.End.Sub(rec.Start).Round(time.Millisecond))
	}
	return nil
}

// applyCRDsMigrateAndCheckReady applies the CustomResourceDefinitions and migrates the database, as before an upgrade. Both stay
// when the older release returns, so its processes must run on them.
func (t *topology) applyCRDsMigrateAndCheckReady(ctx context.Context) error {
	// A fault may be in progress, so an administrator would try again.
	err := poll(ctx, replaceBound, func(ctx context.Context) error { return t.kube.InstallCRDs(ctx, t.latest.crds()) })
	if err != nil {
		return err
	}
	if err := poll(ctx, replaceBound, t.migrateDatabase); err != nil {
		return err
	}
	pauseFor(ctx, oldBinaryTime)
	if err := poll(ctx, replaceBound, t.checkReady); err != nil {
		return fmt.Errorf("the previous release on the schema and the definitions of this one: %w", err)
	}
	return nil
}

func (t *topology) migrateDatabase(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, filepath.Join(t.latest.bin, "fleet-api"), "migrate") //nolint:gosec // our own program
	cmd.Env = []string{"DATABASE_URL=" + t.database.clientURL()}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("migrate the database: %w: %s", err, out)
	}
	return nil
}

// rollTo applies the roles and policies of a release, and replaces one process of each component at a
// time.
func (t *topology) rollTo(ctx context.Context, r release) error {
	if err := poll(ctx, replaceBound, func(ctx context.Context) error { return t.applyManifests(ctx, r) }); err != nil {
		return err
	}
	for i := range t.replicas(0) {
		errs := make([]error, len(components()))
		var replacing sync.WaitGroup
		for at, group := range components() {
			replacing.Go(func() { errs[at] = t.groups[group][i].restartOnRelease(ctx, r) })
		}
		replacing.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
		pauseFor(ctx, besideTime)
	}
	return nil
}

// restartOnRelease ends the process as the kubelet does, and waits until that of another release is ready.
func (p *process) restartOnRelease(ctx context.Context, r release) error {
	p.mu.Lock()
	p.release = r
	p.mu.Unlock()
	if err := p.terminate(); err != nil {
		return err
	}
	if err := poll(ctx, replaceBound, p.checkReady); err != nil {
		return fmt.Errorf("%s of the %s release: %w", p.name, r.name, err)
	}
	return nil
}
