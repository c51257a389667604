package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fleetloop/fleetloop/internal/settings"
)

// Config is the configuration of a database connection.
type Config struct {
	// URL connects to the database, as a postgres:// URL or as key=value pairs. It may name several
	// hosts; the one that accepts writes is used.
	//
	// With default_query_exec_mode=exec (or simple_protocol, or cache_describe) it may lead to a
	// pooler. Such a pooler gives each transaction another connection, as PgBouncer does in
	// transaction mode: no statement is prepared then, and the only connection settings are its
	// name and time zone, which such poolers support. The login must then provide the rest: the
	// rights, by inheriting Role or by ALTER ROLE login SET role = ..., and likewise
	// statement_timeout. Migrating and listening need a direct connection to the server.
	URL settings.Secret `key:"url" env:"DATABASE_URL" file:"url_file" secret:"true" doc:"URL of the PostgreSQL database, postgres://user:password@host:5432/database"`

	// MigrationURL connects as the owner of the schema. Empty means URL.
	MigrationURL settings.Secret `key:"migration_url" env:"DATABASE_MIGRATION_URL" file:"migration_url_file" secret:"true" doc:"PostgreSQL URL of the role that owns the schema, for migrations (default: the database URL)"`

	// Role is the role that a connection assumes, so that row-level security applies although the
	// login may own the schema.
	Role string `key:"role" env:"DATABASE_ROLE" flag:"database-role" default:"fleet_api" doc:"database role to use"`

	// MaxConns is the maximum number of connections of this process.
	MaxConns int `key:"max_conns" env:"DATABASE_MAX_CONNS" flag:"database-max-conns" default:"16" validate:"min=1,max=1000" doc:"maximum number of database connections"`

	// ConnectTimeout is the timeout of one attempt to connect to one host.
	ConnectTimeout time.Duration `key:"connect_timeout" env:"DATABASE_CONNECT_TIMEOUT" default:"5s" validate:"gt=0" doc:"timeout of one attempt to connect"`

	// StatementTimeout is the server's timeout of one statement, in case the client does not cancel
	// it.
	StatementTimeout time.Duration `key:"statement_timeout" env:"DATABASE_STATEMENT_TIMEOUT" default:"30s" validate:"gt=0" doc:"timeout of one statement"`

	// ApplicationName is the name of the connections in pg_stat_activity.
	ApplicationName string `key:"application_name" env:"DATABASE_APPLICATION_NAME" default:"fleetloop" doc:"application name of the connections in pg_stat_activity"`

	// ProbeEvery is the interval at which Pool.Run probes an available database. The program sets
	// it, not its users. Zero means DefaultProbeEvery.
	ProbeEvery time.Duration
}

// DefaultProbeEvery is the default interval at which a pool probes its database.
const DefaultProbeEvery = time.Second

const (
	defaultMaxConns         = 16
	defaultConnectTimeout   = 5 * time.Second
	defaultStatementTimeout = 30 * time.Second

	maxConnIdle     = 5 * time.Minute
	maxConnLifetime = time.Hour
	lifetimeJitter  = 10 * time.Minute
)

func (c Config) withDefaults() Config {
	if c.MaxConns == 0 {
		c.MaxConns = defaultMaxConns
	}
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = defaultConnectTimeout
	}
	if c.StatementTimeout == 0 {
		c.StatementTimeout = defaultStatementTimeout
	}
	if c.ApplicationName == "" {
		c.ApplicationName = "fleetloop"
	}
	return c
}

// newPoolConfig returns the configuration of the pgx pool.
func (c Config) newPoolConfig() (*pgxpool.Config, error) {
	pc, err := pgxpool.ParseConfig(c.URL.Reveal())
	if err != nil {
		return nil, fmt.Errorf("read the database URL: %w", redactConnError(err))
	}
	pc.MaxConns = int32(c.MaxConns) //nolint:gosec // validated
	pc.MaxConnIdleTime = maxConnIdle
	pc.MaxConnLifetime = maxConnLifetime
	pc.MaxConnLifetimeJitter = lifetimeJitter
	c.applyCommonSettings(pc.ConnConfig)
	c.applyRoleAndTimeoutsUnlessPooled(pc.ConnConfig)
	pc.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		conn.TypeMap().RegisterType(&pgtype.Type{
			Name: "timestamptz", OID: pgtype.TimestamptzOID, Codec: &pgtype.TimestamptzCodec{ScanLocation: time.UTC},
		})
		return checkRoleBoundByRLS(ctx, conn)
	}
	return pc, nil
}

// NewConnConfig returns the configuration of a separate connection, for purposes that a pool does not
// serve. The connection uses the role, and its creator must close it.
func (c Config) NewConnConfig() (*pgx.ConnConfig, error) {
	c = c.withDefaults()
	cc, err := pgx.ParseConfig(c.URL.Reveal())
	if err != nil {
		return nil, fmt.Errorf("read the database URL: %w", redactConnError(err))
	}
	c.applyCommonSettings(cc)
	c.applyRoleAndTimeoutsUnlessPooled(cc)
	return cc, nil
}

// applyRoleAndTimeoutsUnlessPooled sets the role and the timeouts, except behind a pooler.
func (c Config) applyRoleAndTimeoutsUnlessPooled(to *pgx.ConnConfig) {
	if to.DefaultQueryExecMode != pgx.QueryExecModeCacheStatement {
		return // there may be a pooler
	}
	if c.Role != "" {
		to.RuntimeParams["role"] = c.Role
	}
	to.RuntimeParams["statement_timeout"] = formatMilliseconds(c.StatementTimeout)
	to.RuntimeParams["idle_in_transaction_session_timeout"] = formatMilliseconds(2 * c.StatementTimeout)
	// The values of a filter determine the best index; a plan made without them is wrong by orders
	// of magnitude for some. Planning costs a tenth of a millisecond.
	to.RuntimeParams["plan_cache_mode"] = "force_custom_plan"
}

// applyCommonSettings applies the settings of every connection, including those for migrations.
func (c Config) applyCommonSettings(to *pgx.ConnConfig) {
	to.ConnectTimeout = c.ConnectTimeout
	to.RuntimeParams["application_name"] = c.ApplicationName
	to.RuntimeParams["timezone"] = "UTC"
	if to.ValidateConnect == nil {
		// After a failover the old primary returns as a standby, perhaps under the same name: a
		// server that accepts no writes counts as down.
		to.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
}

// checkRoleBoundByRLS refuses a role that row-level security does not bind, because every tenant would see
// every row without any symptom.
func checkRoleBoundByRLS(ctx context.Context, conn *pgx.Conn) error {
	var role string
	var unbound bool
	err := conn.QueryRow(ctx, `
		select r.rolname,
		       r.rolsuper or r.rolbypassrls or exists (
		           select from pg_roles a where a.rolname = $1 and pg_has_role(r.oid, a.oid, 'usage'))
		       or exists (
		           select from pg_class t join pg_namespace n on n.oid = t.relnamespace
		           where n.nspname = 'tenant' and t.relname = 'resources' and pg_has_role(r.oid, t.relowner, 'usage'))
		from pg_roles r where r.rolname = current_user`, RoleAllTenants).Scan(&role, &unbound)
	if err != nil {
		return fmt.Errorf("read the permissions of the database role: %w", err)
	}
	if unbound {
		return fmt.Errorf(
			"role %q bypasses row-level security and would see the rows of all tenants: use the role %q or %q, or one like them",
			role,
			RoleFleetAPI,
			RoleClusterWorker,
		)
	}
	return nil
}

func formatMilliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// redactConnError removes the parts of a pgx error that may contain a password.
func redactConnError(err error) error {
	if parse, ok := errors.AsType[*pgconn.ParseConfigError](err); ok && parse.Unwrap() != nil {
		err = parse.Unwrap()
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}
