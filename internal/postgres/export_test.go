package postgres

// MigrateFiles is Migrate with migrations of the test's own.
var MigrateFiles = runMigrations

// MigrationLockTimeout is how long a migration waits for a lock.
const MigrationLockTimeout = migrationLockTimeout

// WithDefaults fills in what a Config leaves out.
var WithDefaults = Config.withDefaults
