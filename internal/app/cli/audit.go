package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/fleetloop/fleetloop/internal/app/terminal"
	"github.com/fleetloop/fleetloop/internal/execution/audit"
	"github.com/fleetloop/fleetloop/internal/postgres"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// AuditConfig holds the database and the role for reading the audit.
type AuditConfig struct {
	URL  settings.Secret `key:"url" env:"DATABASE_URL" doc:"URL of the PostgreSQL database with the audit, postgres://user:password@host:5432/database"`
	Role string          `key:"role" env:"DATABASE_ROLE" flag:"database-role" default:"execution_auditor" doc:"database role to use"`
}

func newAuditCommand(s *session) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Read and verify the audit of executions",
		Long: "Read and verify the audit of executions.\n\n" +
			"DATABASE_URL names the database to which the execution-controller writes the audit. The login needs the role\n" +
			"execution_auditor, which is read-only.",
		Args: RejectUnknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	settings.AddFlags(cmd.PersistentFlags(), &AuditConfig{})
	cmd.AddCommand(newAuditGetCommand(s), newAuditVerifyCommand(s))
	return cmd
}

func listFormats() []string {
	return []string{terminal.FormatTable, terminal.FormatWide, terminal.FormatJSON}
}

type auditListOptions struct {
	filter    audit.Filter
	since     string
	format    string
	noHeaders bool
}

// defaultEvents is the default number of listed events.
const defaultEvents = 100

func newAuditGetCommand(s *session) *cobra.Command {
	var o auditListOptions
	cmd := &cobra.Command{
		Use:     "get",
		Aliases: []string{"list", "ls"},
		Short:   "List audit events of executions, newest first",
		Example: "  fleetloop audit get --since 24h\n" +
			"  fleetloop audit get --execution scale-web -o json\n" +
			"  fleetloop audit get --target Deployment/shop/web --actor alice@example.com",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return printAuditEvents(s, cmd, o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.filter.Execution, "execution", "", "show only events of the execution with this `name`, namespace/name or UID")
	f.StringVar(&o.filter.Target, "target", "", "show only events on this `object`: web, shop/web, Deployment/web or Deployment/shop/web")
	f.StringVar(&o.filter.Actor, "actor", "", "show only events of this `user`")
	f.StringVar(&o.filter.Cluster, "cluster", "", "show only events in this `cluster`")
	f.StringVar(
		&o.since,
		"since",
		"",
		"show only events since this `time`: an age (2h, 7d), a day (2026-03-01) or a time (2026-03-01T12:00:00Z)",
	)
	f.IntVar(&o.filter.Most, "limit", defaultEvents, "maximum `number` of events; 0 for all")
	f.BoolVar(&o.noHeaders, "no-headers", false, "do not print column headers")
	AddOutputFlag(cmd, &o.format, listFormats())
	return cmd
}

func printAuditEvents(s *session, cmd *cobra.Command, o auditListOptions) error {
	if err := CheckFormat(cmd, o.format, listFormats()); err != nil {
		return err
	}
	if o.filter.Most < 0 {
		return usageErrorf(cmd, "--limit %d is negative", o.filter.Most)
	}
	var err error
	if o.filter.Since, err = parseSince(o.since, s.env.Now()); err != nil {
		return usageError(cmd, err)
	}
	store, closeStore, err := s.openAudit(cmd)
	if err != nil {
		return err
	}
	defer closeStore()
	out := newEventPrinter(s.env.Stdout, o.format, o.noHeaders)
	if err := store.List(cmd.Context(), o.filter, out.writeEvent); err != nil {
		return explainAuditError(err)
	}
	if out.count == 0 {
		if err := checkExecutionInAudit(cmd.Context(), store, o.filter.Execution); err != nil {
			return err
		}
	}
	if err := out.finishOutput(); err != nil {
		return err
	}
	if !terminal.IsTableFormat(o.format) {
		return nil
	}
	switch out.count {
	case 0:
		s.printNote("No events found.")
	case o.filter.Most:
		s.printNote("Only the newest %d are shown; --limit 0 shows all.", out.count)
	}
	return nil
}

func checkExecutionInAudit(ctx context.Context, store *audit.PostgresStore, name string) error {
	if name == "" {
		return nil
	}
	found := false
	err := store.List(ctx, audit.Filter{Execution: name, Most: 1}, func(*audit.Event) error {
		found = true
		return nil
	})
	if err != nil {
		return explainAuditError(err)
	}
	if !found {
		return &failure{
			err:  fmt.Errorf("there is no execution %q in the audit", name),
			code: CodePrecondition,
			next: "run 'fleetloop audit get' to see the newest events of all executions",
		}
	}
	return nil
}

// parseSince reads an age or a time.
func parseSince(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	// Sscanf ignores what follows, so the text must also be what the days are written as.
	var days int
	_, err := fmt.Sscanf(text, "%dd", &days)
	if err == nil && days >= 0 && fmt.Sprintf("%dd", days) == text {
		return now.AddDate(0, 0, -days), nil
	}
	if age, err := time.ParseDuration(text); err == nil && age >= 0 {
		return now.Add(-age), nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("--since %q is not an age such as 2h or 7d, or a time such as 2026-03-01 or 2026-03-01T12:00:00Z", text)
}

func newAuditVerifyCommand(s *session) *cobra.Command {
	var noted []string
	var format string
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Verify that no event of the audit was changed, removed or inserted",
		Long: "Verify that no event of the audit was changed, removed or inserted. If one was, the command reports the first\n" +
			"invalid event and exits with code 1.\n\n" +
			"The owner of the database could replace the whole audit with a consistent one. To detect that, store the head of\n" +
			"the audit, which this command prints and the execution-controller logs hourly, elsewhere, and pass it as --checkpoint.",
		Example: "  fleetloop audit verify\n" +
			"  fleetloop audit verify --checkpoint 1042:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return verifyAuditAndPrint(s, cmd, noted, format) },
	}
	cmd.Flags().StringArrayVar(&noted, "checkpoint", nil, "a `position:hash` that the audit must still contain; can be repeated")
	AddOutputFlag(cmd, &format, versionFormats())
	return cmd
}

func verifyAuditAndPrint(s *session, cmd *cobra.Command, checkpoints []string, format string) error {
	if err := CheckFormat(cmd, format, versionFormats()); err != nil {
		return err
	}
	var positions []audit.Position
	for _, text := range checkpoints {
		p, err := audit.ParsePosition(text)
		if err != nil {
			return usageError(cmd, err)
		}
		positions = append(positions, p)
	}
	store, closeStore, err := s.openAudit(cmd)
	if err != nil {
		return err
	}
	defer closeStore()
	report, err := store.Verify(cmd.Context(), positions...)
	if err != nil {
		return explainAuditError(err)
	}
	if err := printVerifyReport(s.env.Stdout, format, &report); err != nil {
		return err
	}
	for _, p := range positions {
		if report.Broken == nil && p.Position < report.Begin.Position {
			s.printNote("Checkpoint %d was not compared: it was pruned; the audit starts after position %d.", p.Position, report.Begin.Position)
		}
	}
	broken := report.Broken
	if broken == nil {
		return nil
	}
	next := "do not change the database; compare it with a backup"
	if broken.ExecutionUID != "" {
		next = "run 'fleetloop audit get --execution " + broken.ExecutionUID + " -o json' to see the stored event"
	}
	return &failure{err: fmt.Errorf("the audit is invalid: %s", describeBreak(broken)), code: CodeFailed, next: next}
}

// describeBreak returns which event is invalid and why.
func describeBreak(b *audit.Break) string {
	what := fmt.Sprintf("event %d", b.Position)
	if b.ExecutionUID != "" {
		what += fmt.Sprintf(" (number %d of execution %s)", b.Seq, b.ExecutionUID)
	}
	verb := "is " + string(b.Kind)
	if b.Kind != audit.Missing {
		verb = "was " + string(b.Kind)
	}
	return fmt.Sprintf("%s %s: %s", what, verb, b.Message)
}

// openAudit returns the audit of the database that the environment names. The caller must call
// closeStore.
func (s *session) openAudit(cmd *cobra.Command) (store *audit.PostgresStore, closeStore func(), err error) {
	if err := RejectImpersonation(cmd, "the audit is read with the login of the database"); err != nil {
		return nil, nil, err
	}
	var cfg AuditConfig
	if _, err := settings.Load(&cfg, settings.Source{Env: s.env.LookupEnv, Flags: cmd.Flags()}); err != nil {
		return nil, nil, usageError(cmd, err)
	}
	if cfg.URL == "" {
		return nil, nil, NewUsageError(errors.New("no audit database is configured"),
			"set DATABASE_URL to the database of the execution-controller, postgres://user:password@host:5432/database")
	}
	pool, err := postgres.New(postgres.Config{
		URL:             cfg.URL,
		Role:            cfg.Role,
		MaxConns:        2,
		ApplicationName: "fleetloop audit",
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, nil, NewUsageError(err, "check DATABASE_URL")
	}
	if err := pool.CheckSchemaNotBehindOrAltered(cmd.Context()); err != nil {
		pool.Close()
		return nil, nil, explainAuditError(err)
	}
	return audit.NewPostgresStore(pool), pool.Close, nil
}

// explainAuditError explains how to solve an error of the database.
func explainAuditError(err error) error {
	const noRight = "42501"
	f := &failure{err: err, code: CodeFailed}
	switch {
	case errors.Is(err, postgres.ErrUnavailable):
		f.next = "check that the database in DATABASE_URL is reachable from here"
	case errors.Is(err, postgres.ErrSchemaBehind):
		f.next = "run 'fleet-api migrate' to migrate it"
	case postgres.SQLState(err) == noRight:
		f.next = "as the owner of the database, grant execution_auditor to the login in DATABASE_URL"
	}
	return f
}
