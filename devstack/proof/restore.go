package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"syscall"
	"time"

	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/devstack/proof/faults"
	"github.com/fleetloop/fleetloop/devstack/proof/history"
)

const (
	// longRun is the duration of a run from which on all faults are default ones.
	longRun = 30 * time.Minute
	// backupShare and gapShare are the shares of the duration before the backup, and between it and the restore.
	backupShare = 0.4
	gapShare    = 0.2
	maxGap      = time.Minute
	// restoreBound is the longest time of one command of the restore. The database is small.
	restoreBound = 2 * time.Minute
	// preflightPerCluster is the time that preflight needs for a cluster at most. Its requests are limited.
	preflightPerCluster = 100 * time.Millisecond
	killWait            = 10 * time.Second
)

// restoredGroups returns the groups of processes that docs/how-to/back-up-and-restore.md stops or restarts, except for the
// fleet API.
func restoredGroups() []string { return []string{"adapter", "execution-controller", "cluster-worker"} }

// orphanEnv lets the cluster-workers delete orphans. In a short run they list often: an orphan is in two lists.
func orphanEnv(duration time.Duration) map[string]string {
	env := map[string]string{"RECONCILE_ORPHAN_MIN_AGE": "20s", "RECONCILE_DELETE_ORPHANS": "true"}
	if duration < longRun {
		env["RECONCILE_INTERVAL"] = "20s"
	}
	return env
}

// backUpAndRestore takes a backup, lets users go on for a while, and restores the backup as the documentation says.
func (r *planRun) backUpAndRestore(ctx context.Context) error {
	commands, err := readRestoreCommands(r.latest.source)
	if err != nil {
		return err
	}
	if !pauseFor(ctx, time.Duration(float64(r.plan.duration)*backupShare)) {
		return context.Cause(ctx)
	}
	rec := &history.Restore{Backup: time.Now()}
	if err := r.runShellOnPrimary(ctx, commands.backUp); err != nil {
		return err
	}
	if !pauseFor(ctx, min(time.Duration(float64(r.plan.duration)*gapShare), maxGap)) {
		return context.Cause(ctx)
	}
	return r.injector.RunAlone(ctx, func() error {
		fault := &history.Fault{Kind: faults.Restore, Target: "postgresql", Start: time.Now()}
		if err := r.stopRestoreAndRestart(ctx, commands, rec); err != nil {
			return err
		}
		fault.End = time.Now()
		r.file.Add(history.Record{Fault: fault})
		return nil
	})
}

// stopRestoreAndRestart restores the backup. Its steps are those of docs/how-to/back-up-and-restore.md.
func (r *planRun) stopRestoreAndRestart(ctx context.Context, commands restoreCommands, rec *history.Restore) error {
	viewer, err := r.newClient("viewer")
	if err != nil {
		return err
	}
	defer viewer.CloseIdle()
	cursor, err := readCursor(ctx, viewer)
	if err != nil {
		return fmt.Errorf("read a cursor: %w", err)
	}

	r.printProgress("restore: stop")
	if err := r.stopAndHold(append(restoredGroups(), "fleet-api")...); err != nil {
		return err
	}
	if err := r.keepShoots(ctx, rec); err != nil {
		return err
	}
	if err := r.replaceDatabase(ctx, commands, rec); err != nil {
		return err
	}

	r.printProgress("restore: start the fleet API")
	rec.Up = time.Now()
	if err := r.unholdAndAwaitReady(ctx, "fleet-api"); err != nil {
		return err
	}
	if rec.WatchStatus, err = watchFrom(ctx, viewer, cursor); err != nil {
		return err
	}
	// Users list again what there is.
	lost, err := r.load.reloadIDs(ctx, viewer)
	if err != nil {
		return fmt.Errorf("list after the restore: %w", err)
	}
	r.printProgress(fmt.Sprintf("restore: %d clusters are lost; preflight", len(lost)))
	output, err := r.runPreflight(ctx)
	if err != nil {
		return err
	}
	rec.Preflight, rec.Missing = parsePreflight(output)
	r.restored.add(history.Record{Restore: rec})
	r.load.deleteAgain(ctx, rec.Missing)

	r.printProgress(
		fmt.Sprintf("restore: preflight rejects %d clusters, %d have no Shoot; start the rest", len(rec.Preflight), len(rec.Missing)),
	)
	if err := r.unholdAndAwaitReady(ctx, restoredGroups()...); err != nil {
		return err
	}
	r.load.createAgain(ctx, lost)
	return nil
}

// keepShoots records the Shoots as they are while no worker runs.
func (t *topology) keepShoots(ctx context.Context, rec *history.Restore) error {
	shoots, err := t.readShoots(ctx)
	for _, s := range shoots {
		rec.Shoots = append(rec.Shoots, *s.Shoot)
	}
	return err
}

// stopAndHold ends all processes of some groups as the kubelet does. They stay down until unholdAndAwaitReady.
func (t *topology) stopAndHold(groups ...string) error {
	list := t.processes(groups...)
	errs := make([]error, len(list))
	var stopping sync.WaitGroup
	for i, p := range list {
		stopping.Go(func() { errs[i] = p.end(syscall.SIGTERM, true) })
	}
	stopping.Wait()
	return errors.Join(errs...)
}

// unholdAndAwaitReady starts the processes of some groups, and waits until they are ready.
func (t *topology) unholdAndAwaitReady(ctx context.Context, groups ...string) error {
	for _, p := range t.processes(groups...) {
		if err := p.unhold(ctx); err != nil {
			return err
		}
	}
	return poll(ctx, startBound, func(ctx context.Context) error {
		for _, p := range t.processes(groups...) {
			if err := p.checkReady(ctx); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}
		return nil
	})
}

// readCursor returns a position in the changes of clusters.
func readCursor(ctx context.Context, viewer *fleetclient.Client) (cursor string, err error) {
	err = poll(ctx, restoreBound, func(ctx context.Context) error {
		for e, err := range viewer.Clusters().Watch(ctx, fleetclient.ListOptions{}, "") {
			cursor = e.Cursor
			return err
		}
		return errors.New("the watch ended")
	})
	return cursor, err
}

// watchFrom returns the status of a watch that continues at a cursor.
func watchFrom(ctx context.Context, viewer *fleetclient.Client, cursor string) (status int, err error) {
	err = poll(ctx, restoreBound, func(ctx context.Context) error {
		for _, err := range viewer.Clusters().Watch(ctx, fleetclient.ListOptions{}, cursor) {
			if _, status = classify(err); status == 0 {
				return err
			}
			break
		}
		return nil
	})
	return status, err
}

// runPreflight returns the output of cluster-worker preflight with the settings of a worker. It exits with 1 if it
// rejects a cluster.
func (r *planRun) runPreflight(ctx context.Context) (output string, err error) {
	ctx, cancel := context.WithTimeout(ctx, restoreBound+time.Duration(r.plan.clusters)*preflightPerCluster)
	defer cancel()
	worker := r.groups["cluster-worker"][0]
	cmd := exec.CommandContext(ctx, filepath.Join(r.latest.bin, "cluster-worker"), "preflight") //nolint:gosec // our own program
	for key, value := range worker.env {
		cmd.Env = append(cmd.Env, key+"="+value)
	}
	out, err := cmd.CombinedOutput()
	if !regexp.MustCompile(`clusters checked: \d+`).Match(out) {
		return "", fmt.Errorf("preflight: %w: %s", err, out)
	}
	return string(out), nil
}

// parsePreflight returns the ids of the clusters that preflight rejects, and of those whose Shoot is missing.
func parsePreflight(output string) (rejected, missing []string) {
	for _, m := range regexp.MustCompile(`(?m)^(error|missing) +cluster \S+ \(([0-9a-f-]+)\): `).FindAllStringSubmatch(output, -1) {
		if m[1] == "error" {
			rejected = append(rejected, m[2])
		} else {
			missing = append(missing, m[2])
		}
	}
	slices.Sort(rejected)
	return rejected, missing
}
