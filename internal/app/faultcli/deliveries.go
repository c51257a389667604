package faultcli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
)

func (s *session) newDeliveriesCommand() *cobra.Command {
	var format, event string
	var resend, everything, clusters bool
	cmd := &cobra.Command{
		Use:   "deliveries [NODE ...]",
		Short: "Show undelivered change events of nodes, and send them again",
		Long: "Show the delivery of the change events of nodes, for each sink: events that are pending, and events that the\n" +
			"sink rejected or that expired.\n\n" +
			"Pending events are retried automatically. Rejected events are sent again with --resend, after the sink is\n" +
			"fixed.\n\n" +
			"With --event, show all deliveries of one change event of a cluster, from the fleet API: when and in how many\n" +
			"attempts it was sent to each sink. With --clusters, show the deliveries of all clusters that fail, and those that\n" +
			"were given up in the last 24 hours.",
		Example: "  fleetloop changes deliveries\n" +
			"  fleetloop changes deliveries --clusters\n" +
			"  fleetloop changes deliveries --event=0f1e2d3c4b5a69788796a5b4c3d2e1f0\n" +
			"  fleetloop changes deliveries --resend gpu-node-01\n" +
			"  fleetloop changes deliveries --resend --all",
		ValidArgsFunction: s.completeFaultyNodeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case event != "" && (resend || everything || len(args) > 0):
				return newUsageError(cmd, "--event cannot be combined with nodes, --resend or --all")
			case clusters && (event != "" || resend || everything || len(args) > 0):
				return newUsageError(cmd, "--clusters cannot be combined with nodes, --event, --resend or --all")
			case clusters:
				return cli.ShowUndelivered(cmd, s.env, format)
			case event != "":
				return cli.ShowEventDeliveries(cmd, s.env, event, format)
			case everything && !resend:
				return newUsageError(cmd, "--all requires --resend; without it, all nodes are shown unless nodes are named")
			case resend && everything == (len(args) > 0):
				return newUsageError(cmd, "--resend requires node names or --all")
			case resend:
				return s.runResend(cmd, args)
			}
			return s.printSinksAndUndelivered(cmd, args, format)
		},
	}
	cmd.Flags().
		StringVar(&event, "event", "", "show the deliveries of the change event with this `id`, as shown by 'fleetloop changes -o wide'")
	cmd.Flags().
		BoolVar(&clusters, "clusters", false, "show the failing deliveries of the change events of clusters, from the fleet API")
	cmd.Flags().BoolVar(&resend, "resend", false, "send rejected events again")
	cmd.Flags().BoolVar(&everything, "all", false, "with --resend: for all nodes")
	addValidatedOutputFlag(cmd, &format, terminal.FormatTable, terminal.FormatWide, terminal.FormatJSON, terminal.FormatYAML)
	return cmd
}

// The states of an undelivered event.
const (
	stateWaiting = "pending"  // retried automatically
	stateRefused = "rejected" // not retried
)

// undelivered is an event that a sink has not accepted.
type undelivered struct {
	Node   string           `json:"node"`
	Sink   string           `json:"sink"`
	State  string           `json:"state"`
	Error  string           `json:"error,omitempty"` // of the last failure of the sink for this node
	Action string           `json:"action"`
	At     metav1.MicroTime `json:"at"`
	ID     string           `json:"id"`
}

// sinkState is the state of a sink over all nodes.
type sinkState struct {
	Sink    string       `json:"sink"`
	Waiting int          `json:"pending"`
	Refused int          `json:"rejected"`
	Dropped int64        `json:"dropped"` // because too many were pending
	Taken   *metav1.Time `json:"lastDelivered,omitempty"`
	Failed  *metav1.Time `json:"lastFailed,omitempty"`
	Error   string       `json:"error,omitempty"` // of the last failure since the last delivery
}

// summarizeSinks returns the sinks by name, and their undelivered events by node and age, the
// oldest first.
func summarizeSinks(list []v1alpha1.NodeFault) (sinks []sinkState, events []undelivered) {
	states := map[string]*sinkState{}
	for _, f := range list {
		for _, name := range slices.Sorted(maps.Keys(f.Status.SinkDeliveries)) {
			d := f.Status.SinkDeliveries[name]
			if states[name] == nil {
				states[name] = &sinkState{Sink: name}
			}
			states[name].addNodeDelivery(d)
			for _, r := range f.Status.History {
				state := states[name].countIfUndelivered(d, r.Sequence)
				if state != "" {
					events = append(events, undelivered{
						Node:   f.Name,
						Sink:   name,
						State:  state,
						Error:  d.LastError,
						Action: r.Action,
						At:     r.At,
						ID:     r.ID,
					})
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(states)) {
		sinks = append(sinks, *states[name])
	}
	return sinks, events
}

// countIfUndelivered counts an undelivered record by its state. It returns the state, or an empty text for
// a delivered record.
func (s *sinkState) countIfUndelivered(d v1alpha1.DeliveryStatus, seq int64) (state string) {
	switch {
	case slices.Contains(d.Rejected, seq):
		s.Refused++
		return stateRefused
	case seq > d.ProcessedSequence:
		s.Waiting++
		return stateWaiting
	}
	return ""
}

// addNodeDelivery adds the delivery state of one node.
func (s *sinkState) addNodeDelivery(d v1alpha1.DeliveryStatus) {
	s.Dropped += d.Dropped
	if isLater(d.LastDeliveredAt, s.Taken) {
		s.Taken = d.LastDeliveredAt
	}
	if isLater(d.LastFailedAt, s.Failed) {
		s.Failed = d.LastFailedAt
		s.Error = d.LastError
	}
	if isLater(s.Taken, s.Failed) {
		s.Error = ""
	}
}

func isLater(a, b *metav1.Time) bool { return a != nil && (b == nil || b.Before(a)) }

// sinkRowsOfNode returns the delivery state of the sinks for one node.
func sinkRowsOfNode(now time.Time, st *v1alpha1.NodeFaultStatus) [][]string {
	sinks, _ := summarizeSinks([]v1alpha1.NodeFault{{Status: *st}})
	return formatSinkRows(now, sinks)
}

func formatSinkRows(now time.Time, sinks []sinkState) [][]string {
	rows := [][]string{{"SINK", "PENDING", "REJECTED", "DROPPED", "LAST DELIVERED", "LAST FAILED", "ERROR"}}
	for _, s := range sinks {
		rows = append(rows, []string{
			s.Sink,
			fmt.Sprint(s.Waiting),
			fmt.Sprint(s.Refused),
			fmt.Sprint(s.Dropped),
			formatAgoOrNever(now, s.Taken),
			formatAgoOrNever(now, s.Failed),
			s.Error,
		})
	}
	return rows
}

func formatAgoOrNever(now time.Time, t *metav1.Time) string {
	if t == nil {
		return "never"
	}
	return terminal.Since(now, t.Time) + " ago"
}

// printSinksAndUndelivered prints the state of the sinks and the undelivered events of nodes.
func (s *session) printSinksAndUndelivered(cmd *cobra.Command, args []string, format string) error {
	c, err := s.newClusterClient()
	if err != nil {
		return err
	}
	list, errs, err := c.listFaults(cmd.Context(), args)
	if err != nil {
		return err
	}
	sinks, events := summarizeSinks(list)
	if isJSONOrYAML(format) {
		err = cli.WriteYAMLOrJSON(s.env.Stdout, format, map[string]any{
			"sinks":                   nonNil(sinks),
			"undeliveredChangeEvents": nonNil(events),
		})
	} else {
		err = s.printDeliveryTables(sinks, events, sumDroppedRecords(list), format == terminal.FormatWide)
	}
	if err != nil {
		return err
	}
	return cli.JoinHostErrorsWithExitCode(errs, len(list))
}

// nonNil returns an empty list for nil, so that JSON has no null.
func nonNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// sumDroppedRecords returns how many events were dropped before all sinks had accepted them.
func sumDroppedRecords(list []v1alpha1.NodeFault) int64 {
	var n int64
	for i := range list {
		n += list[i].Status.Dropped
	}
	return n
}

func (s *session) printDeliveryTables(sinks []sinkState, events []undelivered, dropped int64, wide bool) error {
	if len(sinks) == 0 {
		s.printLineToStderr("No change event of a node has been sent yet.")
		return nil
	}
	if err := writeColumns(s.env.Stdout, "", formatSinkRows(s.env.Now(), sinks)); err != nil {
		return err
	}
	if dropped > 0 {
		s.printLineToStderr("Events dropped because too many were pending: %d.", dropped)
	}
	if len(events) == 0 {
		s.printLineToStderr("All events are delivered.")
		return nil
	}
	heads := []string{"NODE", "ACTION", "AGE", "SINK", "STATE", "ERROR"}
	if wide {
		heads = append(heads, "ID")
	}
	rows := [][]string{heads}
	for _, e := range events {
		row := []string{e.Node, e.Action, terminal.Since(s.env.Now(), e.At.Time), e.Sink, e.State, e.Error}
		if wide {
			row = append(row, e.ID)
		}
		rows = append(rows, row)
	}
	if err := s.printLineToStdout(""); err != nil {
		return err
	}
	return writeColumns(s.env.Stdout, "", rows)
}

// runResend requests that rejected events of nodes are sent again.
func (s *session) runResend(cmd *cobra.Command, args []string) error {
	c, err := s.newClusterClient()
	if err != nil {
		return err
	}
	list, errs, err := c.listFaults(cmd.Context(), args)
	if err != nil {
		return err
	}
	asked := 0
	for i := range list {
		f := &list[i]
		sinks := sinksWithResendableRejections(&f.Status)
		if len(sinks) == 0 {
			if len(args) > 0 {
				s.printLineToStderr("node %s: no rejected events", f.Name)
			}
			continue
		}
		if err := c.requestResendByAnnotation(cmd.Context(), f, s.env.Now()); err != nil {
			errs = append(errs, explainHostError(err, fmt.Sprintf("request resend of the events of node %q", f.Name)))
			continue
		}
		asked++
		if err := s.printLineToStdout("node %s: rejected events are sent again to %s", f.Name, strings.Join(sinks, ", ")); err != nil {
			return err
		}
	}
	if asked == 0 && len(args) == 0 && len(errs) == 0 {
		s.printLineToStderr("No rejected events.")
	}
	return cli.JoinHostErrorsWithExitCode(errs, cmp.Or(asked, len(list)-len(errs)))
}

// sinksWithResendableRejections returns the sinks that have rejected an event that is still stored.
func sinksWithResendableRejections(st *v1alpha1.NodeFaultStatus) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(st.SinkDeliveries)) {
		kept := func(r v1alpha1.Record) bool { return slices.Contains(st.SinkDeliveries[name].Rejected, r.Sequence) }
		if slices.ContainsFunc(st.History, kept) {
			names = append(names, name)
		}
	}
	return names
}

// requestResendByAnnotation writes a new value to the NodeFault, which the controller reads as a request to
// resend.
func (c *cluster) requestResendByAnnotation(ctx context.Context, f *v1alpha1.NodeFault, now time.Time) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"annotations": map[string]string{v1alpha1.AnnotationResend: now.UTC().Format(time.RFC3339Nano)},
	}})
	if err != nil {
		return err
	}
	return c.Patch(ctx, f, client.RawPatch(types.MergePatchType, patch))
}
