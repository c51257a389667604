package apiapp_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
	"github.com/fleetloop/fleetloop/internal/processtest"
)

// A server that leaves migrating to others is not ready until they are done:
// it would answer every request with 500.
func TestServeWithoutMigratingWaitsForTheSchema(t *testing.T) {
	env := map[string]string{"DATABASE_URL": pgtest.NewEmptyDatabaseURL(t)}
	server := startAPI(t, env, "--migrate=false")
	ready := server.WaitForURLInLog(t, "metrics and health") + "/readyz"

	processtest.Eventually(t, func() error {
		if status, answer := processtest.SendRequest(t, http.MethodGet, ready, ""); status != http.StatusServiceUnavailable || !strings.Contains(answer, "fleet-api migrate") {
			return errors.New("it does not say that the schema is missing and what to do: " + answer)
		}
		return nil
	})
	if err := startAPI(t, env, "migrate").WaitUntilEnded(t); err != nil {
		t.Fatal(err)
	}
	processtest.Eventually(t, func() error {
		if status, answer := processtest.SendRequest(t, http.MethodGet, ready, ""); status != http.StatusOK {
			return errors.New("it is not ready with the schema in place: " + answer)
		}
		return nil
	})
}
