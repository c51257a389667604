// Package migrations holds the schema of the database as a sequence of SQL
// files, which only ever grows. They run forward; there is no way down but a
// backup.
//
// A migration must not stop a running fleet. It waits for a lock only for the
// moment that the runner allows and is tried again. On a table that may be
// full, build indexes in a file of their own, with "-- +goose NO TRANSACTION"
// and CONCURRENTLY, on each partition; add constraints as NOT VALID and
// validate them in the next file; add columns without a volatile default.
package migrations

import (
	"embed"
	"fmt"
	"strconv"
	"strings"
)

// FS holds the migrations.
//
//go:embed *.sql
var FS embed.FS

// Latest is the version that the newest migration brings the schema to.
func Latest() int64 {
	entries, err := FS.ReadDir(".")
	if err != nil {
		panic(err) // it is part of the program
	}
	var latest int64
	for _, e := range entries {
		number, _, _ := strings.Cut(e.Name(), "_")
		version, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			panic(fmt.Errorf("migration %q has no version number", e.Name()))
		}
		latest = max(latest, version)
	}
	return latest
}

// The roles that the migrations make. A login that serves the API is a member
// of the first two and inherits from neither; one of a cluster-worker is a member
// of the third, one of an execution-controller of the fourth.
const (
	// RoleFleetAPI sees the rows of the tenant that TenantSetting names.
	RoleFleetAPI = "fleet_api"
	// RoleAllTenants sees the rows of every tenant. It is a role and not one
	// more value of the setting, because a policy that asks for either keeps
	// the planner from the indexes that each alone could use.
	RoleAllTenants = "fleet_api_all_tenants"
	// RoleClusterWorker sees the clusters of every tenant, and writes nothing but
	// how far their sync is.
	RoleClusterWorker = "cluster_worker"
	// RoleExecutionController appends to the audit of executions and reads it. It
	// can change or remove nothing of it, but for what is older than the retention.
	RoleExecutionController = "execution_controller"
	// RoleExecutionAuditor reads the audit of executions.
	RoleExecutionAuditor = "execution_auditor"
)

// TenantSetting is the server setting that row-level security compares with.
const TenantSetting = "fleetloop.tenant"
