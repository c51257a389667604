package changeevent

import (
	"net/http"
	"net/url"
	"strings"
)

// The media types of CloudEvents.
const (
	typeJSON            = "application/json"
	typeCloudEvent      = "application/cloudevents+json"
	typeCloudEventBatch = "application/cloudevents-batch+json"
)

// A cloudEvent is a change event in the JSON format of CloudEvents. A receiver detects
// duplicates by source and id.
type cloudEvent struct {
	SpecVersion     string  `json:"specversion"`
	Type            string  `json:"type"`
	Source          string  `json:"source"`
	ID              string  `json:"id"`
	Time            string  `json:"time"`
	Subject         string  `json:"subject,omitempty"`
	DataContentType string  `json:"datacontenttype"`
	Data            Payload `json:"data"`
}

func newCloudEvent(cfg encodeSettings, e *ChangeEvent) cloudEvent {
	p := newPayload(cfg, e)
	subject := p.Node
	if subject == "" {
		subject = p.Subject
	}
	return cloudEvent{
		SpecVersion: "1.0", Type: "io.fleetloop.change." + p.Action + ".v1", Source: sourceURI(p),
		ID: p.ID, Time: p.Timestamp, Subject: subject, DataContentType: typeJSON, Data: p,
	}
}

// sourceURI returns the component of a cluster as the URI reference that CloudEvents
// requires: /clusters/my-cluster/nvsentinel/fault-quarantine.
func sourceURI(p Payload) string {
	var uri strings.Builder
	add := func(segment string) {
		if segment != "" {
			uri.WriteString("/" + url.PathEscape(segment))
		}
	}
	if p.Cluster != "" {
		add("clusters")
		add(p.Cluster)
	}
	for segment := range strings.SplitSeq(p.Source, "/") {
		add(segment)
	}
	if uri.Len() == 0 {
		return "/"
	}
	return uri.String()
}

func encodeCloudEvent(cfg encodeSettings, e *ChangeEvent) (request, error) {
	event := newCloudEvent(cfg, e)
	body, err := marshalJSONWithoutHTMLEscapes(event)
	if err != nil {
		return request{}, err
	}
	return request{body: body, contentType: typeCloudEvent, header: idempotencyKeyHeader(event.ID)}, nil
}

func encodeCloudEventBinary(cfg encodeSettings, e *ChangeEvent) (request, error) {
	event := newCloudEvent(cfg, e)
	body, err := marshalJSONWithoutHTMLEscapes(event.Data)
	if err != nil {
		return request{}, err
	}
	header := idempotencyKeyHeader(event.ID)
	for attribute, value := range map[string]string{
		"Ce-Specversion": event.SpecVersion, "Ce-Type": event.Type, "Ce-Source": event.Source,
		"Ce-Id": event.ID, "Ce-Time": event.Time, "Ce-Subject": event.Subject,
	} {
		if value != "" {
			header[attribute] = []string{percentEncodeHeaderText(value)}
		}
	}
	return request{body: body, contentType: typeJSON, header: header}, nil
}

func encodeCloudEventBatch(cfg encodeSettings, batch []*ChangeEvent) (request, error) {
	events := make([]cloudEvent, 0, len(batch))
	cfg.room = min(maxText, batchText/len(batch))
	for _, e := range batch {
		events = append(events, newCloudEvent(cfg, e))
	}
	body, err := marshalJSONWithoutHTMLEscapes(events)
	if err != nil {
		return request{}, err
	}
	return request{body: body, contentType: typeCloudEventBatch}, nil
}

// idempotencyKeyHeader returns the header by which a sink can detect a repeated request.
func idempotencyKeyHeader(id string) http.Header {
	return http.Header{"Idempotency-Key": {percentEncodeHeaderText(id)}}
}
