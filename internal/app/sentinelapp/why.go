package sentinelapp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/sentinel/inspect"
	"github.com/fleetloop/fleetloop/internal/sentinel/state"
)

func (c *command) newWhyCommand() *cobra.Command {
	var out format
	var sentinelURL string
	cmd := &cobra.Command{
		Use:   "why ID|NAME",
		Short: "Explain why the sentinel does or does not publish an event for one resource",
		Long: `Read one resource from the live API and show which rule applies, its inputs and
the next due time. Then show the last decisions of the running sentinel and the
result of its events, if it is reachable. The exit code is 1 if the API does not
have the resource.

METRICS_TOKEN, or metrics_token in the configuration, is the token for the
running sentinel.`,
		Example: "  sentinel why eu-west-03 --config ./sentinel-config.yaml\n" +
			"  sentinel why 01a1f9b6-bee5-729b-8247-7017e854ce96 --config ./sentinel-config.yaml --sentinel-url http://sentinel:8080",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := out.validateFormat(); err != nil {
				return err
			}
			watch, closeConns, err := c.newInspectWatch(cmd)
			if err != nil {
				return err
			}
			defer closeConns()
			records, err := newDecisionRecordClient(sentinelURL, c.cfg.MetricsAddr, c.cfg.MetricsToken.Reveal())
			if err != nil {
				return err
			}
			defer records.client.CloseIdleConnections()
			report, err := inspect.ExplainDecision(cmd.Context(), watch, args[0], records)
			if err != nil {
				return addSettingHintToAPIError(err)
			}
			if err := out.writeReport(c.stdout, report, func(p *page) { writeWhyReport(p, report) }); err != nil {
				return err
			}
			if report.State == inspect.StateNotFound {
				return fmt.Errorf(
					"the API at %s has no resource %q in %s; check the name or id, or pass the configuration of another collection with --config",
					report.Endpoint,
					args[0],
					report.Collection,
				)
			}
			return nil
		},
	}
	out.addOutputFlag(cmd)
	cmd.Flags().
		StringVar(&sentinelURL, "sentinel-url", "", "`URL` of the metrics endpoint of the running sentinel (default: metrics_bind_address on this host)")
	return cmd
}

// recordClient is the client of a running sentinel that reads its records.
type recordClient struct {
	url    *url.URL
	token  string
	client *http.Client
}

const (
	askTimeout = 5 * time.Second
	maxRecord  = 4 << 20
)

// newDecisionRecordClient returns a client for the URL of a sentinel or, without one, for its metrics address.
func newDecisionRecordClient(baseURL, metricsAddr, token string) (*recordClient, error) {
	if baseURL == "" {
		host, port, err := net.SplitHostPort(metricsAddr)
		if err != nil {
			return nil, fmt.Errorf("find the running sentinel by metrics_bind_address: %w; set --sentinel-url", err)
		}
		if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
			host = "127.0.0.1"
		}
		baseURL = "http://" + net.JoinHostPort(host, port)
	}
	u, err := url.Parse(baseURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("--sentinel-url %q is invalid: must be a URL such as http://127.0.0.1:8080", baseURL)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:errcheck,forcetypeassert // the standard library's own
	client := &http.Client{
		Transport: transport,
		Timeout:   askTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // the token must not reach another server
		},
	}
	return &recordClient{url: u, token: token, client: client}, nil
}

// URL returns the address of the sentinel.
func (r *recordClient) URL() string { return r.url.Redacted() }

// FetchDecisions returns the records of a resource.
func (r *recordClient) FetchDecisions(ctx context.Context, id string) (answer state.RecordResponse, err error) {
	u := r.url.JoinPath(DecisionsPath)
	u.RawQuery = url.Values{"id": {id}}.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return answer, fmt.Errorf("query the running sentinel: %w", err)
	}
	if r.token != "" {
		req.Header.Set("Authorization", "Bearer "+r.token)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err
		}
		return answer, fmt.Errorf("query the running sentinel: %w; check that it runs there, or set --sentinel-url", err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxRecord))
	if err != nil {
		return answer, fmt.Errorf("read the response of the running sentinel: %w", err)
	}
	var problem v1.Problem
	switch {
	case resp.StatusCode == http.StatusOK:
		if err := json.Unmarshal(body, &answer); err != nil || answer.Time.IsZero() {
			return state.RecordResponse{}, errors.New("query the running sentinel: the response is not from a sentinel; set --sentinel-url")
		}
		return answer, nil
	case resp.StatusCode == http.StatusUnauthorized && r.token != "":
		return answer, errors.New("query the running sentinel: invalid token; set METRICS_TOKEN to the value that it was started with")
	case resp.StatusCode == http.StatusUnauthorized:
		return answer, errors.New("query the running sentinel: a token is required; set METRICS_TOKEN")
	case json.Unmarshal(body, &problem) == nil && problem.Code == state.CodeNoDecisions:
		return answer, nil
	}
	return answer, fmt.Errorf(
		"query the running sentinel: unexpected status %d; check that --sentinel-url is a sentinel of this version",
		resp.StatusCode,
	)
}

func writeWhyReport(p *page, r *inspect.WhyReport) {
	p.writeLinef("%s", formatWhyAnswer(r))
	p.writeLinef("")
	p.writeTable("", nil, [][]string{
		{"resource", strings.TrimSpace(r.ID + " " + r.Name)},
		{"collection", r.Collection + " at " + r.Endpoint},
		{"read at", r.Time.Format("2006-01-02 15:04:05Z")},
		{"selector", formatSelector(r.Selector)},
		{"profile", r.Profile},
	})
	var rows [][]string
	for _, q := range r.Requirements {
		has := "no label " + q.Label
		if q.Value != nil {
			has = q.Label + "=" + *q.Value
		}
		met := "yes"
		if !q.Met {
			met = "NO"
		}
		rows = append(rows, []string{q.Requirement, has, met})
	}
	p.writeTable("SELECTOR", []string{"REQUIREMENT", "ACTUAL", "MATCHES"}, rows)
	if r.Inputs != nil {
		writeInputsAndDecision(p, r)
	}
	writeRunningSentinel(p, r)
}

// formatWhyAnswer returns the answer in one line.
func formatWhyAnswer(r *inspect.WhyReport) string {
	who := r.Name
	if who == "" {
		who = r.ID
	}
	rule := r.Rule + "."
	switch r.State {
	case inspect.StateDue:
		return who + " is due now: " + rule
	case inspect.StateHeld:
		return fmt.Sprintf("%s: event already published, no repeat before %s: %s", who, formatTimeAndDistance(r.Time, r.Next), rule)
	case inspect.StateWaiting:
		if r.Next.IsZero() {
			return who + " is not due: " + rule
		}
		return fmt.Sprintf("%s is not due until %s: %s", who, formatTimeAndDistance(r.Time, r.Next), rule)
	case inspect.StateNotWatched:
		return fmt.Sprintf("%s is not watched by %s: %s", who, r.Config, rule)
	case inspect.StateNotFound:
		return fmt.Sprintf("%q not found: %s", who, rule)
	case inspect.StateUnreadable:
		return who + " is invalid: " + rule
	}
	return rule
}

func writeInputsAndDecision(p *page, r *inspect.WhyReport) {
	in := r.Inputs
	phase := in.Phase + " (not ready)"
	if in.Ready {
		phase = in.Phase
	}
	age := formatSeconds(in.MaxAgeSeconds)
	if in.EarlySeconds > 0 {
		age += " less " + formatSeconds(in.EarlySeconds) + " of jitter"
	}
	rows := [][]string{
		{"generation", fmt.Sprintf("%d, observed %d", in.Generation, in.ObservedGeneration)},
		{"phase", phase},
		{"last status report", formatTimeAndDistance(r.Time, in.LastUpdatedTime)},
		{"last phase change", formatTimeAndDistance(r.Time, in.LastTransitionTime)},
		{"max age", age},
	}
	if !in.UpdatedTime.IsZero() {
		rows = append(rows, []string{"last change of spec or labels", formatTimeAndDistance(r.Time, in.UpdatedTime)})
	}
	if !in.CreatedTime.IsZero() {
		rows = append(rows, []string{"created", formatTimeAndDistance(r.Time, in.CreatedTime)})
	}
	if in.Fault != "" {
		rows = append(rows, []string{"decode error", in.Fault})
	}
	p.writeTable("INPUTS", nil, rows)

	d := r.Decision
	rows = [][]string{
		{"reason", d.Reason},
		{"age from", formatTimeAndDistance(r.Time, d.Since)},
	}
	if d.Due {
		eventID := d.EventID + " (for the current interval of " + formatSeconds(d.IntervalSeconds) + ")"
		rows = append(rows,
			[]string{"due since", formatTimeAndDistance(r.Time, d.Next)},
			[]string{"event id", eventID},
		)
	} else {
		rows = append(rows, []string{"due at", formatTimeAndDistance(r.Time, d.Next)})
	}
	if d.Warning != "" {
		rows = append(rows, []string{"warning", d.Warning})
	}
	if d.Error != "" {
		rows = append(rows, []string{"error", d.Error})
	}
	p.writeTable("DECISION (RULES ONLY)", nil, rows)
}

func writeRunningSentinel(p *page, r *inspect.WhyReport) {
	p.writeLinef("")
	p.writeLinef("RUNNING SENTINEL %s", r.Sentinel.URL)
	switch {
	case r.Sentinel.Error != "":
		p.writeLinef("  %s", r.Sentinel.Error)
	case len(r.Sentinel.Watches) == 0:
		p.writeLinef("  no decisions recorded: the resource was not due since the start, is not watched there, or its history was evicted")
	}
	if e := r.Sentinel.LastEvent; e != nil {
		p.writeTable("", nil, [][]string{
			{"last event", e.EventID},
			{"decided", formatTimeAndDistance(r.Time, e.At)},
			{"result", formatEventOutcome(r.Time, e)},
		})
	}
	for _, w := range r.Sentinel.Watches {
		var rows [][]string
		for _, d := range w.Decisions {
			decision, event := "skip", ""
			if d.Publish {
				decision = "publish"
				event = d.EventID + " " + formatEventOutcome(r.Time, &d)
			}
			rows = append(rows, []string{
				formatRelativeTime(r.Time, d.At),
				decision,
				fmt.Sprint(d.Times),
				fmt.Sprintf("%d/%d", d.ObservedGeneration, d.Generation),
				d.Phase,
				d.Reason,
				event,
			})
		}
		heads := []string{"AT", "DECISION", "COUNT", "OBSERVED", "PHASE", "REASON", "EVENT"}
		p.writeTable("DECISION HISTORY OF "+w.Watch, heads, rows)
	}
}

// formatEventOutcome returns the result of an event.
func formatEventOutcome(now time.Time, d *state.ServedDecision) string {
	switch {
	case !d.ConfirmedAt.IsZero():
		return "confirmed " + formatRelativeTime(now, d.ConfirmedAt)
	case d.Error != "":
		return "not confirmed: " + d.Error
	}
	return "in flight"
}
