package postgres_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/fleetloop/fleetloop/internal/postgres"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

// change returns the migrations with one of them edited.
func change(t *testing.T, name, before, after string) fstest.MapFS {
	t.Helper()
	out := files(t)
	text := string(out[name].Data)
	if !strings.Contains(text, before) {
		t.Fatalf("%s has no %q", name, before)
	}
	out[name] = &fstest.MapFile{Data: []byte(strings.Replace(text, before, after, 1))}
	return out
}

// TestIncompatibleSchemaIsRejected uses databases of other migrations with the same version
// numbers. Neither a migration nor a server may use them.
func TestIncompatibleSchemaIsRejected(t *testing.T) {
	t.Parallel()
	const dropFingerprints = "drop table fleetloop_migration_fingerprints"
	for name, tc := range map[string]struct {
		reason string
		made   fstest.MapFS
		then   string // SQL that runs after made
		want   string // part of the error, empty for success
	}{
		"SameContent":    {reason: "these are the migrations of this program", made: files(t)},
		"OtherComment":   {reason: "a comment changes no table", made: change(t, "00001_resources.sql", "-- +goose Up\n", "-- +goose Up\n\n-- Of the first release.\n")},
		"OtherName":      {reason: "the version number names a migration", made: renamed(t, "00011_clusters_by_name.sql", "00011_cluster_names.sql")},
		"OtherColumn":    {reason: "statements of this program would fail", made: change(t, "00003_changes.sql", "labels_changed", "relabelled"), want: "migration 3 "},
		"NoFingerprints": {reason: "a release without fingerprints made it", made: files(t), then: dropFingerprints, want: "has no fingerprint"},
		"OneMissing":     {reason: "which content it had is not known", made: files(t), then: "delete from fleetloop_migration_fingerprints where version_id = 2", want: "migration 2 "},
		"HalfWay":        {reason: "the later migrations would run on other tables", made: until(t, "00003", "relabelled"), want: "migration 3 "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := pgtest.NewEmptyDatabaseURL(t)
			if err := postgres.MigrateFiles(t.Context(), owner(url), tc.made, slog.New(slog.DiscardHandler)); err != nil {
				t.Fatal(err)
			}
			if tc.then != "" {
				if _, err := connect(t, url).Exec(t.Context(), tc.then); err != nil {
					t.Fatal(err)
				}
			}
			wantRejected(t, tc.reason+": CheckSchema", pgtest.Open(t, url).CheckSchemaNotBehindOrAltered(t.Context()), tc.want)
			wantRejected(t, tc.reason+": Migrate", postgres.MigrateSchema(t.Context(), owner(url), slog.New(slog.DiscardHandler)), tc.want)
		})
	}
}

func wantRejected(t *testing.T, what string, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err == nil:
	case want == "" || !errors.Is(err, postgres.ErrSchemaIncompatible):
		t.Errorf("%s = %v, want rejected: %t", what, err, want != "")
	case !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "drop and recreate the database"):
		t.Errorf("%s = %v, want an error with %q and what to do", what, err, want)
	}
}

// renamed returns the migrations with one under another name.
func renamed(t *testing.T, from, to string) fstest.MapFS {
	t.Helper()
	out := files(t)
	out[to] = out[from]
	delete(out, from)
	return out
}

// until returns the migrations up to one, which has an older column name.
func until(t *testing.T, last, column string) fstest.MapFS {
	t.Helper()
	out := change(t, "00003_changes.sql", "labels_changed", column)
	for name := range out {
		if name[:len(last)] > last {
			delete(out, name)
		}
	}
	return out
}

// TestMigrationIsRepeatedAfterACrash records a fingerprint, and then fails before the migration is
// applied. Other content of the same migration runs later.
func TestMigrationIsRepeatedAfterACrash(t *testing.T) {
	url := pgtest.NewEmptyDatabaseURL(t)
	bad := change(t, "00003_changes.sql", "-- +goose Up\n", "-- +goose Up\nselect 1/0;\n")
	if err := postgres.MigrateFiles(t.Context(), owner(url), bad, slog.New(slog.DiscardHandler)); err == nil {
		t.Fatal("the migration did not fail")
	}
	if err := postgres.MigrateSchema(t.Context(), owner(url), slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	if err := pgtest.Open(t, url).CheckSchemaNotBehindOrAltered(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestFingerprintsAreReadable checks that every server's role can read the fingerprints.
func TestFingerprintsAreReadable(t *testing.T) {
	url := pgtest.NewMigratedDatabaseURL(t)
	for _, role := range []string{"fleet_api", "cluster_worker", "execution_controller", "execution_auditor", "fleet_console"} {
		pool, err := postgres.New(postgres.Config{URL: owner(url).URL, Role: role}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if err := pool.CheckSchemaNotBehindOrAltered(t.Context()); err != nil {
			t.Errorf("%s: %v", role, err)
		}
		pool.Close()
	}
}
