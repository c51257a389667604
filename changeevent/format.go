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
)

// A Format is the format of requests to a sink. The zero value is FormatJSON.
type Format string

// The formats.
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
	return []Format{
		FormatJSON, FormatCloudEvents, FormatCloudEventsBinary, FormatCloudEventsBatch,
		FormatPagerDuty, FormatDatadog, FormatGrafana, FormatSlack,
	}
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

// A dialect is what a sender has to know of a format beside its encoding.
type dialect struct {
	// cluster says that the cluster goes to the end of the path, unless the
	// configuration says otherwise.
	cluster bool
	// batch is how many events fit into one request, 1 or more.
	batch int
	// authHeader and authScheme are where a token goes unless the configuration
	// says otherwise.
	authHeader, authScheme string
	// key says that the credential is a part of the body: encoding.key.
	key bool
}

// dialectOf is for the formats of ParseFormat; an unknown one is as FormatJSON.
func dialectOf(f Format) dialect {
	const authorization = "Authorization"
	switch f {
	case FormatCloudEvents, FormatCloudEventsBinary:
		return dialect{batch: 1, authHeader: authorization}
	case FormatCloudEventsBatch:
		return dialect{batch: 64, authHeader: authorization}
	case FormatPagerDuty:
		return dialect{batch: 1, key: true}
	case FormatDatadog:
		return dialect{batch: 1, authHeader: "DD-API-KEY"}
	case FormatGrafana:
		return dialect{batch: 1, authHeader: authorization, authScheme: "Bearer"}
	case FormatSlack:
		return dialect{batch: 50}
	case FormatJSON:
	}
	return dialect{cluster: true, batch: 1, authHeader: authorization}
}

// An encoding is what the sink adds to its events.
type encoding struct {
	// cluster says that the cluster of the events goes to the end of the path.
	cluster bool
	// key is the credential that goes into the body, where the format has one.
	key string
	// links are added to those of the events.
	links []LinkTemplate
	// product is what summaries call the sender. Empty follows from the source.
	product string
	// strict leaves out what the decision record does not have.
	strict bool
	// room is how many bytes of text an event has. 0 is maxText.
	room int
}

// A request is an event, or several, as a sink wants it.
type request struct {
	body        []byte
	contentType string
	// header has further headers, or is nil.
	header http.Header
	// path is one segment, already escaped, that goes to the end of the path of
	// the endpoint. Empty means that the endpoint is used as it is.
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

// encodeEvents writes the events of the batch, which the client has completed: each
// has its time, and the source, the cluster and the dry run of the
// configuration. The events are not changed and nothing of them is kept.
//
// Text is made valid and cut to what the format allows, so that no event is
// refused by a sink for what a monitor wrote into its message.
func encodeEvents(f Format, cfg encoding, batch []*ChangeEvent) (request, error) {
	if len(batch) == 0 {
		return request{}, errNoEvent
	}
	if len(batch) > dialectOf(f).batch {
		return request{}, errTooMany
	}
	for _, e := range batch {
		if shortLabel(e.Action) == "" {
			return request{}, errNoAction
		}
	}
	req, err := encodeAs(f, cfg, batch)
	if err != nil {
		return request{}, fmt.Errorf("encode as %s: %w", f.orJSON(), err)
	}
	if cfg.cluster {
		if req.path, err = clusterPath(batch); err != nil {
			return request{}, fmt.Errorf("encode as %s: %w", f.orJSON(), err)
		}
	}
	return req, nil
}

func (f Format) orJSON() Format {
	if f == "" {
		return FormatJSON
	}
	return f
}

func encodeAs(f Format, cfg encoding, batch []*ChangeEvent) (request, error) {
	switch f {
	case FormatJSON, "":
		return encodeJSON(cfg, batch[0])
	case FormatCloudEvents:
		return encodeCloudEvent(cfg, batch[0])
	case FormatCloudEventsBinary:
		return encodeCloudEventBinary(cfg, batch[0])
	case FormatCloudEventsBatch:
		return encodeCloudEventBatch(cfg, batch)
	case FormatPagerDuty:
		return encodePagerDuty(cfg, batch[0])
	case FormatDatadog:
		return encodeDatadog(cfg, batch[0])
	case FormatGrafana:
		return encodeGrafana(cfg, batch[0])
	case FormatSlack:
		return encodeSlack(cfg, batch)
	}
	return request{}, fmt.Errorf("unknown format %q", f)
}

// clusterPath is the cluster of the events as one segment of a path. Dots alone
// are refused because they survive escaping and then climb out of the path.
func clusterPath(batch []*ChangeEvent) (string, error) {
	name := batch[0].Cluster
	for _, e := range batch[1:] {
		if e.Cluster != name {
			return "", errManyPlaces
		}
	}
	if err := checkCluster(name); err != nil {
		return "", err
	}
	return url.PathEscape(name), nil
}

// checkCluster says whether a name can be the last segment of a path.
func checkCluster(name string) error {
	if name == "" || name == "." || name == ".." {
		return fmt.Errorf("cluster %q is not a valid path segment", name)
	}
	return nil
}

func encodeJSON(cfg encoding, e *ChangeEvent) (request, error) {
	p := payloadOf(cfg, e)
	header := idempotency(p.ID)
	if cfg.strict {
		p = strictPayload(p)
	}
	body, err := marshalJSON(p)
	if err != nil {
		return request{}, err
	}
	return request{body: body, contentType: typeJSON, header: header}, nil
}

// marshalJSON is JSON as people would write it, without escapes for HTML, which
// the summary of an event with an ampersand would be full of.
func marshalJSON(v any) ([]byte, error) {
	var buf bytes.Buffer
	buf.Grow(1024)
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// headerText makes a value fit for a header: what is not printable ASCII, and
// what quotes or escapes, is percent-encoded, as CloudEvents has it.
func headerText(text string) string {
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
