package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"path/filepath"

	"github.com/jackc/pgx/v5"

	"github.com/fleetloop/fleetloop/devstack/proof/history"
	"github.com/fleetloop/fleetloop/internal/postgres/pgserver"
)

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
	if err := t.runShellOnPrimary(ctx, commands.restore); err != nil {
		return err
	}
	if err := t.runShellOnPrimary(ctx, commands.migrate); err != nil {
		return err
	}
	if rec.HistoryAfter, err = t.database.readHistoryID(ctx); err != nil {
		return err
	}
	rec.Kept, err = t.database.readKeptAfterRestore(ctx)
	return err
}

// runShellOnPrimary runs commands of the documentation on the primary database.
func (t *topology) runShellOnPrimary(ctx context.Context, commands string) error {
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
	cmd.Dir, cmd.WaitDelay = t.dir, killWait                                    // a client that outlives bash keeps its output open
	cmd.Env = []string{
		"PATH=" + t.latest.bin + ":" + clients + ":/usr/bin:/bin",
		"HOME=" + t.dir,
		"DATABASE_URL=" + database,
		"ADMIN_URL=" + admin,
	}
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

// findPostgresClients returns the folder of pg_dump, pg_restore and psql. They must not be older than the server, which
// is that of the PATH, or the newest.
func findPostgresClients() (dir string, err error) {
	if server, err := exec.LookPath("postgres"); err == nil {
		client := filepath.Join(filepath.Dir(server), "pg_dump")
		if _, err := exec.LookPath(client); err == nil {
			return filepath.Dir(client), nil
		}
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/pg_dump")
	if path, errPath := exec.LookPath("pg_dump"); errPath == nil && len(found) == 0 {
		found = []string{path}
	}
	if err != nil || len(found) == 0 {
		return "", errors.Join(errors.New("pg_dump of an installed PostgreSQL"), err)
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
		err := conn.QueryRow(ctx, `select coalesce(string_agg(application_name || ' ' || state, ', '), '') from pg_stat_activity
			where datname = $1 and pid <> pg_backend_pid()`, pgserver.DefaultDatabase).Scan(&users)
		if err == nil && users != "" {
			err = fmt.Errorf("the database is in use: %s", users)
		}
		return err
	})
}

// readKeptAfterRestore returns the clusters and node pools in the database.
func (d *database) readKeptAfterRestore(ctx context.Context) (map[string]history.Kept, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	kept := map[string]history.Kept{}
	err := d.onPrimary(ctx, func(conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, `select c.id::text, c.generation, coalesce(s.generation, 0),
				coalesce(s.synced_generation > 0, false), c.deleted_time is not null
			from tenant.clusters c left join tenant.cluster_sync s on s.cluster_id = c.id
			union all select p.id::text, p.generation, 0, false, p.deleted_time is not null from tenant.nodepools p`)
		if err != nil {
			return err
		}
		var id string
		var k history.Kept
		_, err = pgx.ForEachRow(rows, []any{&id, &k.Generation, &k.SyncGeneration, &k.HasShoot, &k.Deleting}, func() error {
			kept[id] = k
			return nil
		})
		return err
	})
	return kept, err
}
