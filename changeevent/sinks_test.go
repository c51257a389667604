package changeevent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	sdk "github.com/cloudevents/sdk-go/v2/event"
)

// A sinkRule is the documentation of a vendor's endpoint: requests must have all required
// fields and no unknown ones.
type sinkRule struct {
	endpoint string
	// config sets what the sink needs besides the format and the endpoint.
	config func(cfg *Config)
	check  func(r *http.Request, body []byte) error
	// status and answer are the response to a valid request.
	status int
	answer string
}

// sinkRules returns the rules of the formats, with the endpoints of the documentation.
func sinkRules() map[Format]sinkRule {
	token := func(value string) func(cfg *Config) {
		return func(cfg *Config) { cfg.AuthToken = value }
	}
	return map[Format]sinkRule{
		FormatJSON:              {"https://fleet.example.com/api/changes", token("Bearer 5bc0"), isPayload, http.StatusAccepted, ""},
		FormatCloudEvents:       {"https://broker.example.com/events", token("Bearer 5bc0"), isStructured, http.StatusNoContent, ""},
		FormatCloudEventsBinary: {"https://broker.example.com/events", token("Bearer 5bc0"), isBinary, http.StatusNoContent, ""},
		FormatCloudEventsBatch:  {"https://broker.example.com/events", token("Bearer 5bc0"), isBatch, http.StatusNoContent, ""},
		FormatPagerDuty: {
			"https://events.pagerduty.com/v2/change/enqueue", func(cfg *Config) { cfg.RoutingKey = "0123456789abcdef0123456789abcdef" },
			isPagerDuty, http.StatusAccepted, `{"status":"success","message":"Change event processed"}`,
		},
		FormatDatadog: {"https://event-management-intake.datadoghq.com/api/v2/events", token("0123456789abcdef"), isDatadog, http.StatusAccepted, `{"data":{}}`},
		FormatGrafana: {"https://grafana.example.com/api/annotations", token("glsa_5bc0"), isGrafana, http.StatusOK, `{"message":"Annotation added","id":1}`},
		FormatSlack:   {"https://hooks.slack.com/services/T0/B0/5bc0", func(*Config) {}, isSlack, http.StatusOK, "ok"},
	}
}

// Endpoints returns the endpoints of the documentation.
func Endpoints() map[Format]string {
	all := map[Format]string{}
	for f, rule := range sinkRules() {
		all[f] = rule.endpoint
	}
	return all
}

// strict decodes JSON that has only the fields of into.
func strict(body []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more after the JSON")
	}
	return nil
}

// within returns an error for a text that is empty or too long.
func within(texts map[string]string, limits map[string]int) error {
	for name, text := range texts {
		if n := utf16Len(text); n < 1 || n > limits[name] {
			return fmt.Errorf("%s has %d characters, want 1 to %d", name, n, limits[name])
		}
	}
	return nil
}

func wantHeader(r *http.Request, name, pattern string) error {
	got := r.Header.Values(name)
	if len(got) != 1 || !regexp.MustCompile("^(?:"+pattern+")$").MatchString(got[0]) {
		return fmt.Errorf("header %s is %q, want one like %s", name, got, pattern)
	}
	return nil
}

func isPayload(r *http.Request, body []byte) error {
	var p Payload
	if err := strict(body, &p); err != nil {
		return err
	}
	if _, err := Decode(body); err != nil {
		return err
	}
	if u, err := url.PathUnescape(r.URL.EscapedPath()[strings.LastIndex(r.URL.EscapedPath(), "/")+1:]); err != nil || u != p.Cluster {
		return fmt.Errorf("the path %q does not end with the cluster %q", r.URL.EscapedPath(), p.Cluster)
	}
	return errors.Join(wantHeader(r, "Content-Type", "application/json"), wantHeader(r, "Idempotency-Key", "[!-~]+"))
}

// isEvent validates an event in JSON with the SDK of CloudEvents.
func isEvent(body []byte) error {
	var event sdk.Event
	if err := json.Unmarshal(body, &event); err != nil {
		return err
	}
	if _, err := url.Parse(event.Source()); err != nil {
		return err
	}
	return event.Validate()
}

func isStructured(r *http.Request, body []byte) error {
	return errors.Join(isEvent(body), wantHeader(r, "Content-Type", `application/cloudevents\+json`))
}

func isBatch(r *http.Request, body []byte) error {
	var events []json.RawMessage
	if err := strict(body, &events); err != nil {
		return err
	}
	for _, event := range events {
		if err := isEvent(event); err != nil {
			return err
		}
	}
	return wantHeader(r, "Content-Type", `application/cloudevents-batch\+json`)
}

// isBinary combines the attributes and the data into an event in JSON.
func isBinary(r *http.Request, body []byte) error {
	event := map[string]any{"data": json.RawMessage(body), "datacontenttype": r.Header.Get("Content-Type")}
	for name, values := range r.Header {
		attribute, ok := strings.CutPrefix(strings.ToLower(name), "ce-")
		if !ok {
			continue
		}
		if err := wantHeader(r, name, "[!-~]+"); err != nil {
			return err
		}
		value, err := url.PathUnescape(values[0])
		if err != nil {
			return err
		}
		event[attribute] = value
	}
	text, err := json.Marshal(event)
	if err != nil {
		return err
	}
	return errors.Join(isEvent(text), wantHeader(r, "Content-Type", "application/json"))
}

func isPagerDuty(r *http.Request, body []byte) error {
	var event struct {
		RoutingKey string `json:"routing_key"`
		Payload    struct {
			Summary       string         `json:"summary"`
			Timestamp     time.Time      `json:"timestamp"`
			Source        string         `json:"source"`
			CustomDetails map[string]any `json:"custom_details"`
		} `json:"payload"`
		Links []struct {
			Href string `json:"href"`
			Text string `json:"text"`
		} `json:"links"`
	}
	if err := strict(body, &event); err != nil {
		return err
	}
	if len(body) > 512<<10 || len(event.RoutingKey) != 32 {
		return fmt.Errorf("%d bytes, a key of %d characters", len(body), len(event.RoutingKey))
	}
	for _, l := range event.Links {
		if !strings.HasPrefix(l.Href, "http") {
			return fmt.Errorf("link %q", l.Href)
		}
	}
	return errors.Join(
		within(map[string]string{"summary": event.Payload.Summary}, map[string]int{"summary": 1024}),
		wantHeader(r, "Content-Type", "application/json"),
	)
}

func isDatadog(r *http.Request, body []byte) error {
	type named struct {
		Type string `json:"type"`
		Name string `json:"name"`
	}
	var event struct {
		Data struct {
			Type       string `json:"type"`
			Attributes struct {
				Category       string    `json:"category"`
				Title          string    `json:"title"`
				Message        string    `json:"message"`
				Host           string    `json:"host"`
				Timestamp      time.Time `json:"timestamp"`
				Tags           []string  `json:"tags"`
				AggregationKey string    `json:"aggregation_key"`
				IntegrationID  string    `json:"integration_id"`
				Attributes     struct {
					ChangedResource named          `json:"changed_resource"`
					Author          named          `json:"author"`
					PrevValue       map[string]any `json:"prev_value"`
					NewValue        map[string]any `json:"new_value"`
					ChangeMetadata  map[string]any `json:"change_metadata"`
				} `json:"attributes"`
			} `json:"attributes"`
		} `json:"data"`
	}
	if err := strict(body, &event); err != nil {
		return err
	}
	a := event.Data.Attributes
	change := a.Attributes
	switch {
	case event.Data.Type != "event", a.Category != "change", a.IntegrationID != "custom-events":
		return fmt.Errorf("type %q, category %q, integration %q", event.Data.Type, a.Category, a.IntegrationID)
	case change.ChangedResource.Type != "configuration", change.Author.Type != "system":
		return fmt.Errorf("resource %+v, author %+v", change.ChangedResource, change.Author)
	case len(a.Tags) > 100, len(change.ChangeMetadata) > 100, len(a.Message) > 4*4000, utf16Len(a.Message) > 4000, utf16Len(a.AggregationKey) > 100:
		return fmt.Errorf("%d tags, %d metadata, %d characters", len(a.Tags), len(change.ChangeMetadata), utf16Len(a.Message))
	case !strings.HasPrefix(r.URL.Path, "/api/v2/events"):
		return fmt.Errorf("path %q", r.URL.Path)
	}
	return errors.Join(
		within(map[string]string{"title": a.Title, "resource": change.ChangedResource.Name, "author": change.Author.Name},
			map[string]int{"title": 500, "resource": 128, "author": 128}),
		wantHeader(r, "Dd-Api-Key", "[0-9a-f]{16}"), wantHeader(r, "Content-Type", "application/json"),
	)
}

func isGrafana(r *http.Request, body []byte) error {
	var note struct {
		DashboardUID string   `json:"dashboardUID"`
		PanelID      int64    `json:"panelId"`
		Time         int64    `json:"time"`
		TimeEnd      int64    `json:"timeEnd"`
		Tags         []string `json:"tags"`
		Text         string   `json:"text"`
	}
	if err := strict(body, &note); err != nil {
		return err
	}
	if note.TimeEnd != 0 && note.TimeEnd < note.Time {
		return fmt.Errorf("from %d to %d", note.Time, note.TimeEnd)
	}
	for _, tag := range note.Tags {
		if err := within(map[string]string{"tag": tag}, map[string]int{"tag": 100}); err != nil {
			return err
		}
	}
	if rest := regexp.MustCompile(`<a href="https?://[^"<>]*">[^<>]*</a>`).ReplaceAllString(note.Text, ""); strings.ContainsAny(rest, "<>") {
		return fmt.Errorf("text %q has other HTML than links", note.Text)
	}
	return errors.Join(
		within(map[string]string{"text": note.Text}, map[string]int{"text": 3000}),
		wantHeader(r, "Authorization", "Bearer glsa_.+"), wantHeader(r, "Content-Type", "application/json"),
	)
}

// slackMarkup matches the allowed content of angle brackets: a date or a link.
const slackMarkup = `<!date\^-?[0-9]+\^\{date_short_pretty\} \{time_secs\}\|[^<>|]+>|<https?://[^<>|]+(\|[^<>|]*)?>`

func isSlack(r *http.Request, body []byte) error {
	type text struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	var message struct {
		Text   string `json:"text"`
		Unfurl bool   `json:"unfurl_links"`
		Blocks []struct {
			Type     string `json:"type"`
			Text     *text  `json:"text"`
			Elements []text `json:"elements"`
		} `json:"blocks"`
	}
	if err := strict(body, &message); err != nil {
		return err
	}
	if len(message.Blocks) > 50 {
		return fmt.Errorf("%d blocks", len(message.Blocks))
	}
	texts := []text{{"mrkdwn", message.Text}}
	for _, block := range message.Blocks {
		if (block.Type == "section") != (block.Text != nil) || (block.Type == "context") != (len(block.Elements) > 0) || len(block.Elements) > 10 {
			return fmt.Errorf("block %+v", block)
		}
		texts = append(texts, block.Elements...)
		if block.Text != nil {
			texts = append(texts, *block.Text)
		}
	}
	for _, t := range texts {
		rest := regexp.MustCompile(slackMarkup).ReplaceAllString(t.Text, "")
		if t.Type != "mrkdwn" || strings.ContainsAny(rest, "<>") || regexp.MustCompile(`&(?:[^alg]|a[^m]|$)`).MatchString(rest) {
			return fmt.Errorf("text %q", t.Text)
		}
		if err := within(map[string]string{"text": t.Text}, map[string]int{"text": 3000}); err != nil {
			return err
		}
	}
	if len(r.Header.Values("Authorization")) > 0 {
		return errors.New("an authorization that a webhook has no use for")
	}
	return wantHeader(r, "Content-Type", "application/json")
}

// headerLines returns the headers that depend on the format.
func headerLines(h http.Header) []string {
	var lines []string
	for name, values := range h {
		switch name {
		case "Accept-Encoding", "Content-Length", "User-Agent":
			continue
		}
		for _, v := range values {
			lines = append(lines, name+": "+v)
		}
	}
	slices.Sort(lines)
	return lines
}

// pretty formats JSON over several lines, as in the documentation.
func pretty(body []byte) string {
	var out bytes.Buffer
	if err := json.Indent(&out, body, "", "  "); err != nil {
		return strconv.Quote(string(body))
	}
	return out.String()
}
