package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
)

// ShowEventDeliveries prints the deliveries of one change event, from the fleet API that the flags
// of cmd name.
func ShowEventDeliveries(cmd *cobra.Command, env Env, eventID, format string) error {
	s := &session{env: env}
	client, err := s.newClient(cmd)
	if err != nil {
		return err
	}
	defer client.CloseIdle()
	d, err := client.ChangeEvents().Deliveries(cmd.Context(), eventID)
	switch {
	case fleetclient.IsNotFound(err):
		return explainNoDeliveries(err)
	case err != nil:
		return err
	case !terminal.IsTableFormat(format):
		return WriteYAMLOrJSON(env.Stdout, format, d)
	case !d.Recorded:
		s.printNote("No delivery of this change event is recorded: %s.", terminal.ReplaceUnprintable(d.Reason))
		return nil
	}
	return printDeliveries(s, d.Items)
}

// ShowUndelivered prints the deliveries of the change events of clusters that fail or were given up,
// from the fleet API that the flags of cmd name.
func ShowUndelivered(cmd *cobra.Command, env Env, format string) error {
	s := &session{env: env}
	client, err := s.newClient(cmd)
	if err != nil {
		return err
	}
	defer client.CloseIdle()
	list, err := client.ChangeEvents().Undelivered(cmd.Context())
	switch {
	case err != nil:
		return explainOldServer(err, "this list")
	case !terminal.IsTableFormat(format):
		return WriteYAMLOrJSON(env.Stdout, format, list)
	case len(list.Items) == 0:
		s.printNote("No delivery of a change event of a cluster fails, and none was given up in the last 24 hours.")
		return nil
	}
	rows := [][]terminal.Cell{
		append(terminal.PlainRow("CLUSTER", "ACTION", "AGE"), append(deliveryHeaders(), terminal.Cell{Text: "EVENT"})...),
	}
	for _, u := range list.Items {
		row := append(terminal.PlainRow(u.Cluster, u.Action, terminal.Since(env.Now(), u.Time)), deliveryRow(s, &u.Delivery)...)
		rows = append(rows, append(row, terminal.Cell{Text: u.EventID}))
	}
	table := terminal.Table{Colour: s.useColour()}
	if err := table.WriteRows(env.Stdout, rows); err != nil {
		return err
	}
	if list.More {
		s.printNote("Only the first %d are shown.", len(list.Items))
	}
	return nil
}

func explainNoDeliveries(err error) error {
	return &failure{err: err, code: CodeFailed, next: "use a fleet API of the same release, and an id that 'fleetloop changes -o wide' shows"}
}

func printDeliveries(s *session, items []v1.ChangeDelivery) error {
	rows := [][]terminal.Cell{deliveryHeaders()}
	for i := range items {
		rows = append(rows, deliveryRow(s, &items[i]))
	}
	table := terminal.Table{Colour: s.useColour()}
	return table.WriteRows(s.env.Stdout, rows)
}

func deliveryHeaders() []terminal.Cell {
	return terminal.PlainRow("SINK", "TYPE", "STATE", "ATTEMPTS", "FIRST ATTEMPT", "LAST ATTEMPT", "NEXT ATTEMPT", "ERROR")
}

func deliveryRow(s *session, d *v1.ChangeDelivery) []terminal.Cell {
	const stateColumn = 2
	now, next, failed := s.env.Now(), "-", d.Error
	if d.NextAttemptAt != nil {
		next = "in " + terminal.Since(*d.NextAttemptAt, now)
	}
	if d.HTTPStatus != 0 {
		failed += fmt.Sprintf(" (%d)", d.HTTPStatus)
	}
	row := terminal.PlainRow(d.Sink, d.Type, string(d.State), strconv.Itoa(d.Attempts), formatAttempt(now, d.FirstAttemptAt), formatAttempt(now, d.LastAttemptAt), next, failed)
	row[stateColumn].Style = deliveryStyle(d)
	return row
}

func formatAttempt(now time.Time, at *time.Time) string {
	if at == nil {
		return "-"
	}
	return terminal.Since(now, *at) + " ago"
}

func deliveryStyle(d *v1.ChangeDelivery) terminal.Style {
	switch {
	case d.State == v1.DeliveryRejected, d.State == v1.DeliveryExpired:
		return terminal.Bad
	case d.State == v1.DeliveryPending && d.Error != "":
		return terminal.Busy
	}
	return terminal.Plain
}

func newResendCommand(s *session) *cobra.Command {
	var o v1.ChangeResend
	cmd := &cobra.Command{
		Use:   "resend EVENT-ID",
		Short: "Send a change event of a cluster to its sinks again",
		Long: "Send a change event of the cluster-worker, with the same id, to the sinks that rejected it or for which it\n" +
			"expired. With --sink, send it to one sink, even if the sink has accepted it. The timeline records the request.\n\n" +
			"Change events of nodes are sent again with 'fleetloop changes deliveries --resend'.",
		Example: "  fleetloop changes resend 0f1e2d3c4b5a69788796a5b4c3d2e1f0\n" +
			"  fleetloop changes resend 0f1e2d3c4b5a69788796a5b4c3d2e1f0 --sink=on-call --reason='the token was replaced'",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return runResend(s, cmd, args[0], o) },
	}
	cmd.Flags().StringVar(&o.Sink, "sink", "", "send the event to this `sink` only")
	cmd.Flags().StringVar(&o.Reason, "reason", "", "`text` that says why; shown with the changes of the cluster")
	return cmd
}

func runResend(s *session, cmd *cobra.Command, eventID string, o v1.ChangeResend) error {
	client, err := s.newClient(cmd)
	if err != nil {
		return err
	}
	defer client.CloseIdle()
	sent, err := client.ChangeEvents().Resend(cmd.Context(), eventID, uuid.NewString(), o)
	if e, ok := errors.AsType[*fleetclient.Error](err); ok && fleetclient.IsNotFound(err) {
		return &failure{err: e, code: CodePrecondition, next: fmt.Sprintf("run 'fleetloop changes deliveries --event=%s'", eventID)}
	}
	if err != nil {
		return err
	}
	if len(sent.Queued) == 0 {
		s.printNote("Nothing to send: every delivery is pending, or was accepted by its sink. Name a sink with --sink to send it again.")
		return nil
	}
	_, err = fmt.Fprintf(
		s.env.Stdout,
		"change event %s is sent again to %s\n",
		terminal.ReplaceUnprintable(eventID),
		terminal.ReplaceUnprintable(strings.Join(sent.Queued, ", ")),
	)
	return err
}
