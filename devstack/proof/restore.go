package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/devstack/proof/faults"
	"github.com/fleetloop/fleetloop/devstack/proof/history"
	"github.com/fleetloop/fleetloop/internal/postgres/pgserver"
)

const (
	// restoreFrom is the duration of a run from which on a restore is one of the default faults.
	restoreFrom = 30 * time.Minute
	// backupShare and gapShare are the shares of the duration before the backup, and between it and the restore.
	backupShare = 0.4
	gapShare    = 0.2
	maxGap      = time.Minute
	// restoreBound is the longest time of one command of the restore. The database is small.
	restoreBound = 2 * time.Minute
)

// restoredGroups returns the groups of processes that docs/how-to/back-up-and-restore.md stops or restarts, except for the
// fleet API.
func restoredGroups() []string { return []string{"adapter", "execution-controller", "cluster-worker"} }

// orphanEnv lets the cluster-workers delete orphans. In a short run they list often: an orphan is in two lists.
func orphanEnv(duration time.Duration) map[string]string {
	env := map[string]string{"RECONCILE_ORPHAN_MIN_AGE": "20s", "RECONCILE_DELETE_ORPHANS": "true"}
	if duration < restoreFrom {
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
	if err := r.runOnPrimary(ctx, commands.backUp); err != nil {
		return err
	}
	if !pauseFor(ctx, min(time.Duration(float64(r.plan.duration)*gapShare), maxGap)) {
		return context.Cause(ctx)
	}
	return r.injector.RunAlone(ctx, func() error {
		fault := &history.Fault{Kind: faults.Restore, Target: "postgresql", Start: time.Now()}
		if err := r.restore(ctx, commands, rec); err != nil {
			return err
		}
		fault.End = time.Now()
		r.file.Add(history.Record{Fault: fault})
		return nil
	})
}

// restore restores the backup. Its steps are those of docs/how-to/back-up-and-restore.md.
func (r *planRun) restore(ctx context.Context, commands restoreCommands, rec *history.Restore) error {
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
	if err := r.startHeld(ctx, "fleet-api"); err != nil {
		return err
	}
	if rec.WatchStatus, err = watchFrom(ctx, viewer, cursor); err != nil {
		return err
	}
	// Users list again what there is.
	lost, err := r.load.reload(ctx, viewer)
	if err != nil {
		return fmt.Errorf("list after the restore: %w", err)
	}
	r.printProgress(fmt.Sprintf("restore: %d clusters are lost; preflight", len(lost)))
	output, err := r.runPreflight(ctx)
	if err != nil {
		return err
	}
	var missing []string
	rec.Preflight, missing = parsePreflight(output)
	r.restored.add(history.Record{Restore: rec})
	r.load.deleteAgain(ctx, missing)

	r.printProgress(fmt.Sprintf("restore: preflight rejects %d clusters, %d have no Shoot; start the rest", len(rec.Preflight), len(missing)))
	if err := r.startHeld(ctx, restoredGroups()...); err != nil {
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

// stopAndHold ends all processes of some groups as the kubelet does. They stay down until startHeld.
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

// startHeld starts the processes of some groups, and waits until they are ready.
func (t *topology) startHeld(ctx context.Context, groups ...string) error {
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

// replaceDatabase restores the backup into an empty database, and records what it has.
func (t *topology) replaceDatabase(ctx context.Context, commands restoreCommands, rec *history.Restore) (err error) {
	if rec.HistoryBefore, err = t.database.readHistoryID(ctx); err != nil {
		return err
	}
	// The connections of processes that were killed may be open, and a database in use cannot be renamed.
	for _, p := range t.database.proxies {
		p.SetCut(true)
		p.SetCut(false)
	}
	if err := poll(ctx, restoreBound, t.database.checkUnused); err != nil {
		return err
	}
	if err := t.runOnPrimary(ctx, commands.restore); err != nil {
		return err
	}
	if err := t.runOnPrimary(ctx, commands.migrate); err != nil {
		return err
	}
	if rec.HistoryAfter, err = t.database.readHistoryID(ctx); err != nil {
		return err
	}
	rec.Kept, err = t.database.readKept(ctx)
	return err
}

// runOnPrimary runs commands of the documentation on the primary database.
func (t *topology) runOnPrimary(ctx context.Context, commands string) error {
	clients, err := findPostgresClients()
	if err != nil {
		return err
	}
	t.database.mu.Lock() // it stays the primary
	defer t.database.mu.Unlock()
	database := t.database.nodes[t.database.primary].server.DatabaseURL()
	admin, err := adminURL(database)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, restoreBound)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", commands) //nolint:gosec // our own documentation
	cmd.Dir = t.dir
	cmd.Env = []string{"PATH=" + t.latest.bin + ":" + clients + ":/usr/bin:/bin", "HOME=" + t.dir, "DATABASE_URL=" + database, "ADMIN_URL=" + admin}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", commands, err, out)
	}
	return nil
}

// adminURL returns the URL of the database that administrators use.
func adminURL(database string) (string, error) {
	u, err := url.Parse(database)
	if err != nil {
		return "", err
	}
	u.Path = "/postgres"
	return u.String(), nil
}

// findPostgresClients returns the folder of pg_dump, pg_restore and psql, the newest if there are several.
func findPostgresClients() (dir string, err error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/pg_dump")
	if path, errPath := exec.LookPath("pg_dump"); errPath == nil && len(found) == 0 {
		found = []string{path}
	}
	if err != nil || len(found) == 0 {
		return "", errors.Join(errors.New("pg_dump is not installed: install PostgreSQL"), err)
	}
	return filepath.Dir(found[len(found)-1]), nil
}

// readHistoryID returns the id of the present history.
func (d *database) readHistoryID(ctx context.Context) (id string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	err = d.onPrimary(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, "select tenant.history_id()").Scan(&id)
	})
	return id, err
}

// checkUnused returns an error while a client uses the database.
func (d *database) checkUnused(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.onPrimary(ctx, func(conn *pgx.Conn) error {
		var users string
		err := conn.QueryRow(ctx, "select coalesce(string_agg(application_name || ' ' || state, ', '), '') from pg_stat_activity where datname = $1 and pid <> pg_backend_pid()", pgserver.DefaultDatabase).Scan(&users)
		if err == nil && users != "" {
			err = fmt.Errorf("the database is in use: %s", users)
		}
		return err
	})
}

// readKept returns the clusters and node pools in the database.
func (d *database) readKept(ctx context.Context) (map[string]history.Kept, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	kept := map[string]history.Kept{}
	err := d.onPrimary(ctx, func(conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, `select c.id::text, c.generation, coalesce(s.generation, 0), c.deleted_time is not null
			from tenant.clusters c left join tenant.cluster_sync s on s.cluster_id = c.id
			union all select p.id::text, p.generation, 0, p.deleted_time is not null from tenant.nodepools p`)
		if err != nil {
			return err
		}
		var id string
		var k history.Kept
		_, err = pgx.ForEachRow(rows, []any{&id, &k.Generation, &k.SyncGeneration, &k.Deleting}, func() error {
			kept[id] = k
			return nil
		})
		return err
	})
	return kept, err
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
func (t *topology) runPreflight(ctx context.Context) (output string, err error) {
	ctx, cancel := context.WithTimeout(ctx, restoreBound)
	defer cancel()
	worker := t.groups["cluster-worker"][0]
	cmd := exec.CommandContext(ctx, filepath.Join(t.latest.bin, "cluster-worker"), "preflight") //nolint:gosec // our own program
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
