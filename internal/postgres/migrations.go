package postgres

import (
	"embed"
	"io/fs"
	"maps"
	"slices"
)

//go:embed migrations/*.sql
var embedded embed.FS

// MigrationFiles returns the schema of the database as a sequence of SQL files, to which files are only
// added. They run forward; the only way back is a backup. The previous release runs on the schema, so a
// migration drops or renames only what that release no longer uses.
//
// A migration must not stop a running fleet. It waits for a lock only for the short time that the
// runner allows, and is retried. On a table that may be full, build indexes in a separate file,
// with "-- +goose NO TRANSACTION" and CONCURRENTLY, on each partition; add constraints as NOT VALID
// and validate them in the next file; add columns without a volatile default.
func MigrationFiles() fs.FS {
	files, err := fs.Sub(embedded, "migrations")
	if err != nil {
		panic(err) // impossible: the path is valid
	}
	return files
}

// LatestSchemaVersion returns the schema version of the newest migration.
func LatestSchemaVersion() int64 {
	hashByVersion, err := computeFingerprints(MigrationFiles())
	if err != nil {
		panic(err) // impossible: the files are part of the program
	}
	return slices.Max(slices.Collect(maps.Keys(hashByVersion)))
}

// The roles that the migrations create. A login of the API is a member of the first two and
// inherits from neither. A login of a cluster-worker is a member of the third, one of an
// execution-controller of the fourth, one of a console of the last.
const (
	// RoleFleetAPI sees the rows of the tenant that TenantSetting names.
	RoleFleetAPI = "fleet_api"
	// RoleAllTenants sees the rows of every tenant. It is a role and not another value of the
	// setting, because a policy with both alternatives prevents the planner from using the indexes
	// that each alone could use.
	RoleAllTenants = "fleet_api_all_tenants"
	// RoleClusterWorker sees the clusters of every tenant, and writes only the state of their sync.
	RoleClusterWorker = "cluster_worker"
	// RoleExecutionController appends to the audit of executions and reads it. It can neither
	// change nor remove records, except those older than the retention.
	RoleExecutionController = "execution_controller"
	// RoleExecutionAuditor reads the audit of executions.
	RoleExecutionAuditor = "execution_auditor"
	// RoleConsole stores the sessions of the web console, and reaches nothing else.
	RoleConsole = "fleet_console"
)

// TenantSetting is the server setting with the tenant for row-level security.
const TenantSetting = "fleetloop.tenant"
