package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fleetloop/fleetloop/internal/postgres"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// messages is a log handler that forwards messages.
type messages struct {
	slog.Handler
	said chan string
}

func newMessages() messages { return messages{slog.DiscardHandler, make(chan string, 100)} }

func (messages) Enabled(context.Context, slog.Level) bool { return true }

func (m messages) Handle(_ context.Context, r slog.Record) error {
	m.said <- r.Message
	return nil
}

func files(t *testing.T) fstest.MapFS {
	t.Helper()
	entries, err := fs.ReadDir(postgres.MigrationFiles(), ".")
	if err != nil {
		t.Fatal(err)
	}
	out := fstest.MapFS{}
	for _, e := range entries {
		b, err := fs.ReadFile(postgres.MigrationFiles(), e.Name())
		if err != nil {
			t.Fatal(err)
		}
		out[e.Name()] = &fstest.MapFile{Data: b}
	}
	return out
}

func owner(url string) postgres.Config { return postgres.Config{URL: settings.Secret(url)} }

func TestMigrationsRunOnce(t *testing.T) {
	for name, rounds := range map[string]int{"OneAfterAnother": 1, "AtOnce": 5} {
		t.Run(name, func(t *testing.T) {
			url, log := pgtest.NewEmptyDatabaseURL(t), newMessages()
			for range 2 {
				var g errgroup.Group
				for range rounds {
					g.Go(func() error { return postgres.MigrateSchema(t.Context(), owner(url), slog.New(log)) })
				}
				if err := g.Wait(); err != nil {
					t.Fatal(err)
				}
			}
			if want := len(files(t)); len(log.said) != want {
				t.Errorf("%d migrations ran, want each of the %d once", len(log.said), want)
			}
		})
	}
}

// TestMigrationsAreNumberedWithoutAGap checks the numbers, because a migration that fills a gap
// does not run where a later one has.
func TestMigrationsAreNumberedWithoutAGap(t *testing.T) {
	for i, name := range slices.Sorted(maps.Keys(files(t))) {
		if want := fmt.Sprintf("%05d_", i+1); !strings.HasPrefix(name, want) {
			t.Fatalf("migration %s is number %d: name it %s…", name, i+1, want)
		}
	}
}

// TestMigrationsOfTwoDatabasesAtOnce migrates two databases of one server, which share the roles.
func TestMigrationsOfTwoDatabasesAtOnce(t *testing.T) {
	var g errgroup.Group
	for range 4 {
		url := pgtest.NewEmptyDatabaseURL(t)
		g.Go(func() error { return postgres.MigrateSchema(t.Context(), owner(url), slog.New(slog.DiscardHandler)) })
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}

// TestAPlainOwnerCanMigrate checks that a login that only owns its database can migrate it if the
// roles exist.
func TestAPlainOwnerCanMigrate(t *testing.T) {
	url := pgtest.NewEmptyDatabaseURL(t)
	conn := connect(t, url)
	for _, sql := range []string{
		"create role plain_owner login",
		"grant fleet_api, fleet_api_all_tenants, cluster_worker, execution_controller, execution_auditor, fleet_console to plain_owner",
		"alter database " + conn.Config().Database + " owner to plain_owner",
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		for _, sql := range []string{"reassign owned by plain_owner to postgres", "drop owned by plain_owner", "drop role plain_owner"} {
			if _, err := conn.Exec(ctx, sql); err != nil {
				t.Error(err)
			}
		}
	})
	plain := strings.Replace(url, "postgres@", "plain_owner@", 1)
	if err := postgres.MigrateSchema(t.Context(), owner(plain), slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	// It owns the tables, but row-level security still applies.
	if got := countVisible(t, pgtest.Open(t, plain), postgres.Scope{Tenant: "a"}); got != 0 {
		t.Errorf("sees %d rows", got)
	}
}

// TestAMigrationHoldsNobodyUp checks that a migration that waits for a lock lets other transactions
// pass.
func TestAMigrationHoldsNobodyUp(t *testing.T) {
	url := pgtest.NewMigratedDatabaseURL(t)
	reader, writer := connect(t, url), connect(t, url)
	if _, err := writer.Exec(t.Context(), insertCluster, "t", "one"); err != nil {
		t.Fatal(err)
	}
	reading, err := reader.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reading.Exec(t.Context(), "select count(*) from tenant.resources"); err != nil {
		t.Fatal(err)
	}

	more := files(t)
	more["00900_more.sql"] = &fstest.MapFile{Data: []byte("-- +goose Up\nalter table tenant.resources add column more int;\n")}
	log := newMessages()
	done := make(chan error, 1)
	go func() { done <- postgres.MigrateFiles(t.Context(), owner(url), more, slog.New(log)) }()
	if got := <-log.said; !strings.Contains(got, "migration waits") {
		t.Errorf("logged %q", got)
	}
	short, cancel := context.WithTimeout(t.Context(), postgres.MigrationLockTimeout+time.Second)
	defer cancel()
	if _, err := writer.Exec(short, "update tenant.resources set phase = 'Ready'"); err != nil {
		t.Errorf("a writer waited behind the migration: %v", err)
	}
	if err := reading.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if _, err := writer.Exec(t.Context(), "select more from tenant.clusters"); err != nil {
		t.Error(err)
	}
}

func TestABadMigrationIsNamed(t *testing.T) {
	bad := fstest.MapFS{"00001_bad.sql": {Data: []byte("-- +goose Up\ncreate table a (b nonsense);\n")}}
	err := postgres.MigrateFiles(t.Context(), owner(pgtest.NewEmptyDatabaseURL(t)), bad, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "00001_bad.sql") || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("got %v", err)
	}
}

func TestASchemaThatIsBehindIsNoticed(t *testing.T) {
	url := pgtest.NewEmptyDatabaseURL(t)
	pool := pgtest.Open(t, url)
	older := files(t)
	var last string
	for name := range older {
		last = max(last, name)
	}
	delete(older, last)
	for _, step := range []struct {
		reason  string
		migrate func() error
		want    error
	}{
		{"nothing is there", func() error { return nil }, postgres.ErrSchemaBehind},
		{"the last migration has not run", func() error {
			return postgres.MigrateFiles(t.Context(), owner(url), older, slog.New(slog.DiscardHandler))
		}, postgres.ErrSchemaBehind},
		{"all have run", func() error { return postgres.MigrateSchema(t.Context(), owner(url), slog.New(slog.DiscardHandler)) }, nil},
		{"one that we do not know has run, as while a newer release is rolled out", func() error {
			newer := files(t)
			newer["09999_newer.sql"] = &fstest.MapFile{Data: []byte("-- +goose Up\nselect 1;\n")}
			return postgres.MigrateFiles(t.Context(), owner(url), newer, slog.New(slog.DiscardHandler))
		}, nil},
	} {
		if err := step.migrate(); err != nil {
			t.Fatal(err)
		}
		if err := pool.CheckSchemaNotBehindOrAltered(t.Context()); !errors.Is(err, step.want) {
			t.Errorf("%s: CheckSchema() = %v, want %v", step.reason, err, step.want)
		}
	}
}
