package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/cli/resource"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
	"github.com/fleetloop/fleetloop/internal/backoff"
)

// Control sequences of a terminal. The alternate screen preserves the main screen, and lines that are too long
// are cut instead of wrapped.
const (
	enterScreen  = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	leaveScreen  = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	cursorHome   = "\x1b[H"
	clearLineEnd = "\x1b[K"
	clearBelow   = "\x1b[J"
)

type topOptions struct {
	stuckOptions

	interval time.Duration
	once     bool
}

func newTopCommand(s *session) *cobra.Command {
	o := topOptions{stuckOptions: stuckOptions{format: terminal.FormatTable}}
	cmd := &cobra.Command{
		Use:   "top [clusters|nodepools]",
		Short: "Watch the counts by phase and what is stuck, refreshed in place",
		Long: "Show the counts of 'fleetloop summary' and the list of 'fleetloop stuck', the oldest first, and refresh them until\n" +
			"interrupted, which exits with 0. Without a terminal, or with --once, show them once. Both commands have -o json.",
		Example: "  fleetloop top\n" +
			"  fleetloop top clusters --cause gardener --interval 5s\n" +
			"  fleetloop top --once",
		Args:      cobra.MaximumNArgs(1),
		ValidArgs: []string{v1.CollectionClusters, v1.CollectionNodePools},
		RunE:      func(cmd *cobra.Command, args []string) error { return runTop(s, cmd, args, o) },
	}
	o.addFilterFlags(cmd)
	cmd.Flags().IntVar(&o.limit, "limit", 50, "maximum `number` of stuck resources; 0 for all. A terminal shows those that fit")
	cmd.Flags().DurationVar(&o.interval, "interval", 2*time.Second, "`duration` between two refreshes")
	cmd.Flags().BoolVar(&o.once, "once", false, "show once, and exit")
	return cmd
}

func runTop(s *session, cmd *cobra.Command, args []string, o topOptions) error {
	q, err := o.parseStuckQuery(cmd, args)
	if err != nil {
		return err
	}
	if o.interval <= 0 {
		return usageErrorf(cmd, "--interval %s is not positive; use a duration such as 2s", o.interval)
	}
	client, err := s.newClient(cmd)
	if err != nil {
		return err
	}
	defer client.CloseIdle()
	t := &topView{session: s, client: client, query: q, limit: o.limit}
	if o.once || !s.env.Terminal {
		return t.fetchAndWriteFrame(cmd.Context(), s.env.Stdout, o.limit)
	}
	return t.refreshUntilDone(cmd.Context(), o.interval)
}

// A topView shows what is stuck.
type topView struct {
	*session

	client *fleetclient.Client
	query  fleetclient.StuckOptions
	limit  int
}

// fetchAndWriteFrame writes the counts, and at most limit stuck resources.
func (t *topView) fetchAndWriteFrame(ctx context.Context, w io.Writer, maxStuck int) error {
	summary, err := t.client.Summary(ctx)
	if err != nil {
		return explainOldServer(err, "top")
	}
	now := t.env.Now()
	var b bytes.Buffer
	for _, rows := range [][][]terminal.Cell{kindRows(summary, now), syncRows(summary, now)} {
		table := terminal.Table{Colour: t.useColour()}
		if err := table.WriteRows(&b, rows); err != nil {
			return err
		}
		b.WriteByte('\n')
	}
	query := t.query
	if maxStuck > 0 {
		query.PageSize = min(maxStuck+1, fleetclient.DefaultPageSize) // one more, to know whether more exist
	}
	stuckTable := resource.NewStuckPrinter(&b, terminal.FormatTable, t.showOptions())
	written, more, err := writeStuck(ctx, t.client, query, stuckTable, maxStuck)
	if err != nil {
		return explainOldServer(err, "top")
	}
	switch {
	case written == 0:
		b.WriteString("Nothing is stuck.\n")
	case more:
		b.WriteString("More resources are stuck; 'fleetloop stuck' lists all.\n")
	}
	_, err = w.Write(b.Bytes())
	return err
}

// refreshUntilDone draws frames until ctx ends, which is the normal end. An unreachable or overloaded server is
// reported in the frame.
func (t *topView) refreshUntilDone(ctx context.Context, interval time.Duration) (err error) {
	if _, err := io.WriteString(t.env.Stdout, enterScreen); err != nil {
		return err
	}
	defer func() { // the error of the command is printed on the main screen
		_, leaveErr := io.WriteString(t.env.Stdout, leaveScreen)
		if err == nil {
			err = leaveErr
		}
	}()
	shown := "" // the last frame that was read
	for {
		var b strings.Builder
		height := t.terminalHeightOrDefault()
		err := t.fetchAndWriteFrame(ctx, &b, t.rowsThatFit(height))
		status := fmt.Sprintf("fleetloop top, every %s, %s", interval, t.env.Now().Format(time.TimeOnly))
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			shown = b.String()
		case shown == "" && errors.Is(err, fleetclient.ErrUnreachable): // more likely a wrong address than an outage
			return err
		case fleetclient.IsTransient(err):
			status += ", not refreshed: " + terminal.ReplaceUnprintable(err.Error())
		default:
			return err
		}
		if err := t.drawFrame(status+"\n\n"+shown, height); err != nil {
			return err
		}
		_ = backoff.Sleep(ctx, max(interval, retryAfter(err))) // the loop checks ctx
	}
}

// drawFrame replaces the screen by the first lines of a text.
func (t *topView) drawFrame(text string, height int) error {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	lines = lines[:min(len(lines), height)]
	_, err := io.WriteString(t.env.Stdout, cursorHome+strings.Join(lines, clearLineEnd+"\r\n")+clearLineEnd+clearBelow)
	return err
}

// defaultHeight is the height of a terminal that does not tell its own.
const defaultHeight = 24

func (t *topView) terminalHeightOrDefault() int {
	if t.env.TerminalHeight != nil {
		if n := t.env.TerminalHeight(); n > 0 {
			return n
		}
	}
	return defaultHeight
}

// linesAround is the number of lines of a frame apart from the stuck resources.
const linesAround = 11

// rowsThatFit returns the limit of stuck resources for a height.
func (t *topView) rowsThatFit(height int) int {
	n := max(height-linesAround, 1)
	if t.limit > 0 {
		n = min(n, t.limit)
	}
	return n
}
