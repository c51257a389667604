package postgres

// MigrateFiles is MigrateSchema with other migrations.
var MigrateFiles = runMigrations

// MigrationLockTimeout is the lock timeout of a migration.
const MigrationLockTimeout = migrationLockTimeout

// WithDefaults sets the defaults of a Config.
var WithDefaults = Config.withDefaults
