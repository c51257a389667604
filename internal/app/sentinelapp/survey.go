package sentinelapp

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
	"github.com/fleetloop/fleetloop/internal/sentinel"
	"github.com/fleetloop/fleetloop/internal/sentinel/inspect"
)

// The exit codes other than 0.
const (
	codeFailed  = 1
	codeTrouble = 2 // the question could not be answered
)

// exitError is an error with a specific exit code.
type exitError struct {
	err  error
	code int
}

func (c *exitError) Error() string { return c.err.Error() }
func (c *exitError) Unwrap() error { return c.err }

// ExitCode returns the exit code for the error of a command.
func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	if c, ok := errors.AsType[*exitError](err); ok {
		return c.code
	}
	return codeFailed
}

// The output formats.
const (
	formatText = "text"
	formatJSON = "json"
)

// format is the output format of a command.
type format string

func (f *format) addOutputFlag(cmd *cobra.Command) {
	list := []string{formatText, formatJSON}
	cmd.Flags().StringVarP((*string)(f), "output", "o", formatText, "output `format`: "+strings.Join(list, ", "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp))
}

func (f *format) validateFormat() error {
	if !slices.Contains([]string{formatText, formatJSON}, string(*f)) {
		return fmt.Errorf("output format %q is invalid: must be %s or %s", *f, formatText, formatJSON)
	}
	return nil
}

// writeReport writes a report as JSON or as text.
func (f *format) writeReport(w io.Writer, report any, text func(*page)) error {
	if *f == formatJSON {
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		return e.Encode(report)
	}
	var p page
	text(&p)
	_, err := io.WriteString(w, p.text.String())
	return err
}

// newInspectWatch builds the watch of the configuration in c.file, and a function that closes its
// connections.
func (c *command) newInspectWatch(cmd *cobra.Command) (w *inspect.Watch, closeConns func(), err error) {
	report, err := c.loadSettings(cmd)
	if err != nil {
		return nil, nil, err
	}
	cfg := c.cfg.Sentinel
	// Validate the whole configuration, as a run does.
	if _, err := sentinel.New(cfg, sentinel.Deps{API: discardBroker{}, Publisher: discardBroker{}}); err != nil {
		return nil, nil, sentinel.WrapKeyErrors(err, report.WrapWithOrigin)
	}
	api, err := NewClient(cfg.HyperfleetAPI)
	if err != nil {
		return nil, nil, err
	}
	if w, err = inspect.NewWatch(c.file, cfg, api); err != nil {
		return nil, nil, err
	}
	if c.manifest != nil {
		w.Part = c.manifest.part
	}
	return w, api.CloseIdle, nil
}

// addSettingHintToAPIError adds the relevant setting to an API error.
func addSettingHintToAPIError(err error) error {
	refusal, refused := errors.AsType[*fleetclient.Error](err)
	switch {
	case refused && refusal.Status == http.StatusUnauthorized && refusal.TokenSent:
		return fmt.Errorf(
			"%w; check the token in HYPERFLEET_API_TOKEN or hyperfleet_api.token_file: it is invalid, expired, or for another API",
			err,
		)
	case refused && refusal.Status == http.StatusUnauthorized:
		return fmt.Errorf("%w; set a token in HYPERFLEET_API_TOKEN, or its file in hyperfleet_api.token_file", err)
	case refused && refusal.Status == http.StatusNotFound, errors.Is(err, fleetclient.ErrUnreachable):
		return fmt.Errorf("%w; check hyperfleet_api.endpoint or --api-endpoint", err)
	}
	return err
}

// progress shows on a terminal how many resources a long list has read.
type progress struct {
	w     io.Writer // nil without a terminal
	last  time.Time
	shown bool
}

const progressEvery = 500 * time.Millisecond

// newProgressIfTerminal returns a progress display. It prints nothing without a terminal or for short lists.
func newProgressIfTerminal(w io.Writer) *progress {
	p := &progress{last: time.Now()}
	if f, ok := w.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			p.w = f
		}
	}
	return p
}

func (p *progress) printProgressIfDue(collection string, resources int) {
	if p.w == nil || time.Since(p.last) < progressEvery {
		return
	}
	p.last, p.shown = time.Now(), true
	_, _ = fmt.Fprintf(p.w, "\r\x1b[Kread %d %s", resources, collection) // a closed terminal is no error
}

// clearLine removes the progress line before the report.
func (p *progress) clearLine() {
	if p.shown {
		_, _ = io.WriteString(p.w, "\r\x1b[K")
	}
}

// page builds text output. It removes control sequences of a terminal from all cells.
type page struct{ text strings.Builder }

// writeLinef writes a line.
func (p *page) writeLinef(format string, args ...any) {
	p.text.WriteString(sanitizeCell(fmt.Sprintf(format, args...)) + "\n")
}

// sanitizeCell returns a text on one line without control sequences.
func sanitizeCell(text string) string {
	return terminal.ReplaceUnprintable(strings.ReplaceAll(text, "\n", "; "))
}

// writeTable writes rows in columns, under a title and optional column headers.
func (p *page) writeTable(title string, heads []string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	if title != "" {
		p.writeLinef("")
		p.writeLinef("%s", title)
	}
	if len(heads) > 0 {
		rows = slices.Insert(slices.Clone(rows), 0, heads)
	}
	t := tabwriter.NewWriter(&p.text, 0, 0, 3, ' ', 0)
	for _, cells := range rows {
		clean := make([]string, len(cells))
		for i, text := range cells {
			clean[i] = cmp.Or(sanitizeCell(text), "-") // never empty, so that scripts can count columns
		}
		_, _ = io.WriteString(t, "  "+strings.Join(clean, "\t")+"\n") // a Builder never fails
	}
	_ = t.Flush()
}

// formatTimeAndDistance returns a time with its distance from now.
func formatTimeAndDistance(now, t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05Z") + " (" + formatRelativeTime(now, t) + ")"
}

// formatRelativeTime returns the distance of a time from now, or "-" for the zero time.
func formatRelativeTime(now, t time.Time) string {
	switch {
	case t.IsZero():
		return "-"
	case t.After(now):
		return "in " + terminal.Age(t.Sub(now))
	}
	return terminal.Age(now.Sub(t)) + " ago"
}

// formatSpan returns the period of a read.
func formatSpan(began, ended time.Time) string {
	return fmt.Sprintf(
		"%s to %s (%s)",
		began.UTC().Format("2006-01-02 15:04:05"),
		ended.UTC().Format("15:04:05Z"),
		ended.Sub(began).Round(time.Millisecond),
	)
}

// formatSeconds formats a duration of a report.
func formatSeconds(s float64) string { return terminal.Age(time.Duration(s * float64(time.Second))) }

// formatCount returns a count with its noun.
func formatCount(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// formatSelector describes a selector.
func formatSelector(sel string) string {
	if sel == "" {
		return "all resources"
	}
	return sel
}
