package cli

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/cli/resource"
)

func newSchemaCommand(s *session) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "schema",
		Short: "Manage the JSON Schemas of specs",
		Long: "Register a JSON Schema for a kind. The server then rejects new and changed specs that violate it, for all tenants.\n" +
			"Existing resources are not changed. Without a schema, any JSON object is a valid spec.",
		Args: RejectUnknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSchemaSetCommand(s), newSchemaGetCommand(s), newSchemaDeleteCommand(s))
	return cmd
}

// withKindAndClient runs a command with the kind of its first argument.
func (s *session) withKindAndClient(
	run func(cmd *cobra.Command, client *fleetclient.Client, k resource.Kind) error,
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		k, err := resource.ParseKind(args[0])
		if err != nil {
			return usageError(cmd, err)
		}
		client, err := s.newClient(cmd)
		if err != nil {
			return err
		}
		defer client.CloseIdle()
		return run(cmd, client, k)
	}
}

func newSchemaSetCommand(s *session) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:               "set KIND -f FILE",
		Short:             "Register the schema of a kind",
		Example:           "  fleetloop schema set clusters -f cluster.schema.json",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.FixedCompletions(resource.Collections(), cobra.ShellCompDirectiveNoFileComp),
		RunE: s.withKindAndClient(func(cmd *cobra.Command, client *fleetclient.Client, k resource.Kind) error {
			if file == "" {
				return usageErrorf(cmd, "give the file with the schema with -f; - is standard input")
			}
			schema, err := resource.ReadObject(file, s.env.Stdin)
			if err != nil {
				return usageError(cmd, err)
			}
			set, err := client.Schemas().Set(cmd.Context(), k.Collection, schema)
			if err != nil {
				return fmt.Errorf("set the schema of %s: %w", k.Collection, err)
			}
			return printSchemaResult(s, k, set.Existing)
		}),
	}
	cmd.Flags().StringVarP(&file, "filename", "f", "", "a `file` with a JSON Schema, as JSON or YAML, or - (standard input)")
	return cmd
}

// printSchemaResult prints the result of a schema change and lists the resources that violate the
// schema.
func printSchemaResult(s *session, k resource.Kind, existing *v1.SchemaWarnings) error {
	if _, err := fmt.Fprintf(s.env.Stdout, "schema/%s set\n", k.Collection); err != nil || existing == nil || existing.Invalid == 0 {
		return err
	}
	s.printNote("warning: %d of %d existing %s violate the schema; they are not changed", existing.Invalid, existing.Checked, k.Collection)
	for _, w := range existing.Examples {
		for _, e := range w.Errors {
			s.printNote("  %s/%s (%s, tenant %s): %s %s", k.Singular, w.Name, w.ID, w.Tenant, e.Pointer, e.Message)
		}
	}
	if more := existing.Invalid - int64(len(existing.Examples)); more > 0 {
		s.printNote("  and %d more", more)
	}
	return nil
}

func newSchemaGetCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:               "get [KIND]",
		Example:           "  fleetloop schema get\n  fleetloop schema get clusters",
		Short:             "Show the schema of a kind, or list the kinds with a schema",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cobra.FixedCompletions(resource.Collections(), cobra.ShellCompDirectiveNoFileComp),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return printSchemaList(s, cmd)
			}
			return s.withKindAndClient(s.showSchema)(cmd, args)
		},
	}
}

func (s *session) showSchema(cmd *cobra.Command, client *fleetclient.Client, k resource.Kind) error {
	schema, err := client.Schemas().Get(cmd.Context(), k.Collection)
	if err != nil {
		return fmt.Errorf("get the schema of %s: %w", k.Collection, err)
	}
	var out bytes.Buffer
	if err := json.Indent(&out, schema.Schema, "", "  "); err != nil {
		return fmt.Errorf("read the schema of %s: %w", k.Collection, err)
	}
	_, err = fmt.Fprintln(s.env.Stdout, out.String())
	return err
}

func printSchemaList(s *session, cmd *cobra.Command) error {
	client, err := s.newClient(cmd)
	if err != nil {
		return err
	}
	defer client.CloseIdle()
	list, err := client.Schemas().List(cmd.Context())
	if err != nil {
		return fmt.Errorf("list schemas: %w", err)
	}
	if len(list) == 0 {
		s.printNote("No kind has a schema.")
	}
	for _, schema := range list {
		if _, err := fmt.Fprintf(s.env.Stdout, "%s   set %s by %s\n", schema.Kind, schema.UpdatedTime.Format("2006-01-02 15:04:05Z07:00"), schema.UpdatedBy); err != nil {
			return err
		}
	}
	return nil
}

func newSchemaDeleteCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:               "delete KIND",
		Example:           "  fleetloop schema delete clusters",
		Short:             "Remove the schema of a kind",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.FixedCompletions(resource.Collections(), cobra.ShellCompDirectiveNoFileComp),
		RunE: s.withKindAndClient(func(cmd *cobra.Command, client *fleetclient.Client, k resource.Kind) error {
			if err := client.Schemas().Delete(cmd.Context(), k.Collection); err != nil {
				return fmt.Errorf("delete the schema of %s: %w", k.Collection, err)
			}
			_, err := fmt.Fprintf(s.env.Stdout, "schema/%s deleted\n", k.Collection)
			return err
		}),
	}
}
