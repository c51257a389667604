package postgres_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/postgres"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// TestDefaultsAreSaidOnce checks that a Config literal gets the defaults of the tags.
func TestDefaultsAreSaidOnce(t *testing.T) {
	var loaded postgres.Config
	env := func(name string) (string, bool) { return "postgres://host/db", name == "DATABASE_URL" }
	if _, err := settings.Load(&loaded, settings.Source{Env: env}); err != nil {
		t.Fatal(err)
	}
	byHand := postgres.WithDefaults(postgres.Config{URL: "postgres://host/db", Role: postgres.RoleFleetAPI})
	if diff := cmp.Diff(byHand, loaded); diff != "" {
		t.Errorf("(-by hand +loaded):\n%s", diff)
	}
}
