package changeevent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// A Format is the format of requests to a sink. The zero value is FormatJSON.
type Format string

// The formats of sinks.
const (
	// FormatJSON is one Payload per request, with the cluster appended to the path.
	// The fleet API accepts it.
	FormatJSON Format = "nvsentinel"
	// FormatCloudEvents is one CloudEvent per request, in structured mode.
	FormatCloudEvents Format = "cloudevents"
	// FormatCloudEventsBinary is one CloudEvent per request, in binary mode.
	FormatCloudEventsBinary Format = "cloudevents-binary"
	// FormatCloudEventsBatch is an array of CloudEvents.
	FormatCloudEventsBatch Format = "cloudevents-batch"
	// FormatPagerDuty is a change event of PagerDuty's Events API v2.
	FormatPagerDuty Format = "pagerduty"
	// FormatDatadog is a change event of Datadog's Events API v2.
	FormatDatadog Format = "datadog"
	// FormatGrafana is an annotation of Grafana's HTTP API.
	FormatGrafana Format = "grafana"
	// FormatSlack is a message to an incoming webhook of Slack.
	FormatSlack Format = "slack"
)

// Formats returns all formats, the default first.
func Formats() []Format {
	var names []Format
	for _, d := range formatSpecs() {
		names = append(names, d.format)
	}
	return names
}

// ParseFormat parses the name of a format. The empty name is FormatJSON.
func ParseFormat(name string) (Format, error) {
	f := Format(strings.ToLower(strings.TrimSpace(name)))
	if f == "" || f == "json" {
		return FormatJSON, nil
	}
	if slices.Contains(Formats(), f) {
		return f, nil
	}
	names := make([]string, 0, len(Formats()))
	for _, known := range Formats() {
		names = append(names, string(known))
	}
	return "", fmt.Errorf("unknown format %q: use one of %s", name, strings.Join(names, ", "))
}

// UnmarshalText parses the name of a format.
func (f *Format) UnmarshalText(text []byte) error {
	parsed, err := ParseFormat(string(text))
	if err != nil {
		return err
	}
	*f = parsed
	return nil
}

// A formatSpec is a format: how it encodes events, and what a sender needs besides.
type formatSpec struct {
	format Format
	// one encodes one event, and many a batch. A format has one of them.
	one  func(encodeSettings, *ChangeEvent) (request, error)
	many func(encodeSettings, []*ChangeEvent) (request, error)
	// cluster appends the cluster to the path, unless the configuration overrides it.
	cluster bool
	// batch is the maximum number of events per request, at least 1.
	batch int
	// wait is the default time to collect a batch.
	wait time.Duration
	// authHeader and authScheme are the default header and scheme of a token.
	authHeader, authScheme string
	// key puts the credential into the body, as encoding.key.
	key bool
}

// formatSpecs returns all formats, the default first. A new format is a line here, and a file with its
// encoder.
func formatSpecs() [8]formatSpec {
	const authorization = "Authorization"
	return [...]formatSpec{
		{format: FormatJSON, one: encodePayloadJSON, batch: 1, cluster: true, authHeader: authorization},
		{format: FormatCloudEvents, one: encodeCloudEvent, batch: 1, authHeader: authorization},
		{format: FormatCloudEventsBinary, one: encodeCloudEventBinary, batch: 1, authHeader: authorization},
		{format: FormatCloudEventsBatch, many: encodeCloudEventBatch, batch: 64, authHeader: authorization},
		{format: FormatPagerDuty, one: encodePagerDuty, batch: 1, key: true},
		{format: FormatDatadog, one: encodeDatadog, batch: 1, authHeader: "DD-API-KEY"},
		{format: FormatGrafana, one: encodeGrafana, batch: 1, authHeader: authorization, authScheme: "Bearer"},
		{format: FormatSlack, many: encodeSlack, batch: 50, wait: DefaultBatchWait},
	}
}

func (d formatSpec) encode(cfg encodeSettings, batch []*ChangeEvent) (request, error) {
	if d.many != nil {
		return d.many(cfg, batch)
	}
	return d.one(cfg, batch[0])
}

// formatSpecOrJSON returns the specification of a format of ParseFormat. An unknown format is treated
// as FormatJSON.
func formatSpecOrJSON(f Format) formatSpec {
	all := formatSpecs()
	for _, d := range all {
		if d.format == f {
			return d
		}
	}
	return all[0]
}

// An encodeSettings holds the settings of a sink that affect how its events are encoded.
type encodeSettings struct {
	// cluster appends the cluster of the events to the path.
	cluster bool
	// key is the credential in the body, for formats that have one.
	key string
	// links are added to the links of the events.
	links []LinkTemplate
	// product is the name of the sender in summaries. Empty means the name from the
	// source.
	product string
	// strict omits the fields that ADR-026 does not define.
	strict bool
	// room is the maximum text of an event in bytes. Zero means maxText.
	room int
}

// A request is one event, or several, in the format of a sink.
type request struct {
	body        []byte
	contentType string
	// header holds further headers. It may be nil.
	header http.Header
	// path is one escaped segment that is appended to the path of the endpoint. Empty
	// means that the endpoint is used unchanged.
	path string
}

var (
	errNoEvent    = errors.New("no event to encode")
	errTooMany    = errors.New("too many events for one request of this format")
	errNoAction   = errors.New("event has no action")
	errNoKey      = errors.New("format requires a routing key")
	errKeyLength  = fmt.Errorf("routing key must have %d characters", keyLength)
	errManyPlaces = errors.New("events of different clusters cannot share a request with the cluster in its path")
)

// encodeEvents encodes a batch of events in a format. The client has already filled in
// the time, the source, the cluster and the dry run of each event. It neither changes nor
// keeps the events.
//
// Text is made valid and truncated to the limits of the format, so that a sink does not
// reject an event because of a monitor's message.
func encodeEvents(f Format, cfg encodeSettings, batch []*ChangeEvent) (request, error) {
	if len(batch) == 0 {
		return request{}, errNoEvent
	}
	d := formatSpecOrJSON(f)
	if d.format != f.orDefaultJSON() {
		return request{}, fmt.Errorf("unknown format %q", f)
	}
	if len(batch) > d.batch {
		return request{}, errTooMany
	}
	for _, e := range batch {
		if sanitizeLabel(e.Action) == "" {
			return request{}, errNoAction
		}
	}
	req, err := d.encode(cfg, batch)
	if err != nil {
		return request{}, fmt.Errorf("encode as %s: %w", f.orDefaultJSON(), err)
	}
	if cfg.cluster {
		if req.path, err = escapedCommonCluster(batch); err != nil {
			return request{}, fmt.Errorf("encode as %s: %w", f.orDefaultJSON(), err)
		}
	}
	return req, nil
}

func (f Format) orDefaultJSON() Format {
	if f == "" {
		return FormatJSON
	}
	return f
}

// escapedCommonCluster returns the cluster of the events as one path segment. It rejects dots,
// because escaping does not change them and they would leave the path.
func escapedCommonCluster(batch []*ChangeEvent) (string, error) {
	name := batch[0].Cluster
	for _, e := range batch[1:] {
		if e.Cluster != name {
			return "", errManyPlaces
		}
	}
	if err := validatePathSegment(name); err != nil {
		return "", err
	}
	return url.PathEscape(name), nil
}

// validatePathSegment returns an error if a name cannot be a path segment.
func validatePathSegment(name string) error {
	if name == "" || name == "." || name == ".." {
		return fmt.Errorf("cluster %q is not a valid path segment", name)
	}
	return nil
}

func encodePayloadJSON(cfg encodeSettings, e *ChangeEvent) (request, error) {
	p := newPayload(cfg, e)
	header := idempotencyKeyHeader(p.ID)
	if cfg.strict {
		p = withBaseFieldsOnly(p)
	}
	body, err := marshalJSONWithoutHTMLEscapes(p)
	if err != nil {
		return request{}, err
	}
	return request{body: body, contentType: typeJSON, header: header}, nil
}

// marshalJSONWithoutHTMLEscapes encodes JSON without HTML escapes, which would make a summary with an
// ampersand hard to read.
func marshalJSONWithoutHTMLEscapes(v any) ([]byte, error) {
	var buf bytes.Buffer
	buf.Grow(1024)
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// percentEncodeHeaderText encodes a value for a header. Characters other than printable ASCII, double
// quotes and percent signs are percent-encoded, as CloudEvents requires.
func percentEncodeHeaderText(text string) string {
	const hex = "0123456789ABCDEF"
	plain := func(b byte) bool { return b > ' ' && b < 0x7F && b != '"' && b != '%' }
	at := 0
	for at < len(text) && plain(text[at]) {
		at++
	}
	if at == len(text) {
		return text
	}
	out := []byte(text[:at])
	for ; at < len(text); at++ {
		if b := text[at]; plain(b) {
			out = append(out, b)
		} else {
			out = append(out, '%', hex[b>>4], hex[b&15])
		}
	}
	return string(out)
}
