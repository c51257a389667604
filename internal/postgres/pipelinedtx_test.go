package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fleetloop/fleetloop/internal/postgres"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

// TestAnIgnoredFailureEndsTheTransaction checks that no statement runs, and nothing is committed, after a failure of the
// begin or of a queued statement, even if the caller ignores the error.
func TestAnIgnoredFailureEndsTheTransaction(t *testing.T) {
	const write = "select pg_advisory_lock(4711)" // it outlives a rollback, and shows on any connection
	cases := map[string]func(ctx context.Context, tx postgres.Tx) error{
		"MissingTable": func(ctx context.Context, tx postgres.Tx) error {
			_, err := tx.Exec(ctx, "delete from tenant.missing")
			return err
		},
		"BadArgument": func(ctx context.Context, tx postgres.Tx) error {
			return tx.QueryRow(ctx, "select $1::int", struct{}{}).Scan(nil)
		},
		"NoConnection": func(ctx context.Context, tx postgres.Tx) error {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			tx.Queue("select 1")
			return tx.QueryRow(ctx, "select 1").Scan(nil)
		},
		"LostWrite": func(ctx context.Context, tx postgres.Tx) error {
			if _, err := tx.ReadBeginTime(ctx); err != nil {
				t.Error(err)
			}
			tx.Queue("select 1")
			_, err := tx.Exec(ctx, "select $1::int", struct{}{})
			return err
		},
	}
	for name, fail := range cases {
		t.Run(name, func(t *testing.T) {
			url := pgtest.NewMigratedDatabaseURL(t)
			p := pgtest.Open(t, url)
			var first error
			err := p.RunInTx(t.Context(), postgres.Scope{Tenant: "a"}, func(ctx context.Context, tx postgres.Tx) error {
				if first = fail(ctx, tx); first == nil {
					t.Error("the first statement did not fail")
				}
				if _, err := tx.Exec(ctx, write); !errors.Is(err, first) {
					t.Errorf("the next statement: got %v", err)
				}
				if _, err := tx.ReadBeginTime(ctx); name != "LostWrite" && !errors.Is(err, first) {
					t.Errorf("the time: got %v", err)
				}
				if err := tx.RunQueued(ctx); !errors.Is(err, first) {
					t.Errorf("the queue: got %v", err)
				}
				tx.Queue(write)
				return nil
			})
			if !errors.Is(err, first) {
				t.Errorf("got %v, want %v", err, first)
			}
			if held := texts(t, connect(t, url), "select 'held' from pg_locks where locktype = 'advisory' and objid = 4711"); len(held) > 0 {
				t.Error("a later statement ran")
			}
		})
	}
}

// TestAMissingRowKeepsPreparedStatements checks that a connection need not prepare a statement again that found no row.
func TestAMissingRowKeepsPreparedStatements(t *testing.T) {
	p := pgtest.New(t)
	preparedAt := func() (at time.Time) {
		err := p.RunInTx(t.Context(), postgres.Scope{}, func(ctx context.Context, tx postgres.Tx) error {
			if err := tx.QueryRow(ctx, "select 4711 where false").Scan(nil); !errors.Is(err, pgx.ErrNoRows) {
				t.Errorf("got %v", err)
			}
			return tx.QueryRow(ctx, "select prepare_time from pg_prepared_statements where statement = 'select 4711 where false'").Scan(&at)
		})
		if err != nil {
			t.Error(err)
		}
		return at
	}
	if before, after := preparedAt(), preparedAt(); !after.Equal(before) {
		t.Errorf("prepared at %s, and again at %s", before, after)
	}
}

// TestKeptPlans checks that the server keeps one plan for each role, if a scope asks for that, and that such a plan never
// scans a table that has an index for the key.
func TestKeptPlans(t *testing.T) {
	const byKey = "select name from tenant.resources where id = $1 and kind = 'Cluster'"
	type plans struct{ Statements, Generic, Custom int }
	for keep, want := range map[bool]plans{true: {Statements: 2, Generic: 6}, false: {Statements: 1, Custom: 6}} {
		url := pgtest.NewMigratedDatabaseURL(t)
		owner, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		// From now on the server knows that the table is small.
		const fill = `insert into tenant.resources (id, kind, tenant, name, spec, generation, created_time, updated_time, phase, last_updated_time, last_transition_time)
			select gen_random_uuid(), 'Cluster', 'a', 'c-' || n, '{}', 1, now(), now(), 'Ready', now(), now() from generate_series(1, 20) n`
		for _, sql := range []string{fill, "vacuum analyze tenant.clusters"} {
			if _, err := owner.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
		if err := owner.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		p := pgtest.Open(t, url)
		var got plans
		var plan string
		for i := range 6 {
			scope := postgres.Scope{Tenant: "a", KeepPlans: keep}
			if i%2 == 0 {
				scope.Role = postgres.RoleAllTenants
			}
			err := p.RunInTx(t.Context(), scope, func(ctx context.Context, tx postgres.Tx) error {
				tx.Queue(byKey, "0190a7c0-0000-7000-8000-000000000000")
				tx.Queue("select count(*), coalesce(sum(generic_plans), 0), coalesce(sum(custom_plans), 0) from pg_prepared_statements where statement like $1", "%"+byKey).QueryRow(func(row pgx.Row) error {
					return row.Scan(&got.Statements, &got.Generic, &got.Custom)
				})
				tx.Queue("explain (format json) " + strings.Replace(byKey, "$1", "'0190a7c0-0000-7000-8000-000000000000'", 1)).QueryRow(func(row pgx.Row) error { return row.Scan(&plan) })
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if got != want {
			t.Errorf("with KeepPlans %t the server has %+v, want %+v", keep, got, want)
		}
		if usesKey := strings.Contains(plan, "clusters_id_key"); usesKey != keep {
			t.Errorf("with KeepPlans %t the plan is %s", keep, plan)
		}
	}
}
