package changeevent

import (
	"html"
	"strings"
	"time"
)

// Limits of an annotation of Grafana, in characters. Grafana limits a tag to 100 and does
// not limit the text.
const (
	grafanaText = 3000
	grafanaTag  = 100
)

// detailBegan is the detail with the start time of an operation that ends with an event,
// such as a drain. Grafana shows the period.
const detailBegan = "began"

// A grafanaAnnotation is an annotation of Grafana's HTTP API.
type grafanaAnnotation struct {
	Time    int64    `json:"time"`
	TimeEnd int64    `json:"timeEnd,omitempty"`
	Tags    []string `json:"tags"`
	Text    string   `json:"text"`
}

func encodeGrafana(cfg encodeSettings, e *ChangeEvent) (request, error) {
	p := newPayload(cfg, e)
	at := e.Timestamp.UnixMilli()
	product := strings.ToLower(productName(cfg.product, p.Source))
	note := grafanaAnnotation{
		Time: at,
		Tags: []string{truncateText(product, grafanaTag), truncateText(p.Action, grafanaTag)},
	}
	began, err := time.Parse(time.RFC3339Nano, p.Details[detailBegan])
	if err == nil && began.Before(e.Timestamp) { // the annotation is a period
		note.Time, note.TimeEnd = began.UnixMilli(), at
	}
	for _, tag := range buildSearchTags(p)[1:] { // the first tag is the action, which is already in the list
		note.Tags = append(note.Tags, truncateText(tag, grafanaTag))
	}
	note.Text = grafanaHTML(p)
	body, err := marshalJSONWithoutHTMLEscapes(note)
	if err != nil {
		return request{}, err
	}
	return request{body: body, contentType: typeJSON}, nil
}

// grafanaHTML returns the text of an annotation, which Grafana shows as HTML. Values are
// escaped, and links can be clicked. A part that does not fit is omitted as a whole, so
// that no tag stays open.
func grafanaHTML(p Payload) string {
	text := escapeWithinLimit(p.Summary, grafanaText/3, html.EscapeString)
	add := func(more string) {
		if len(text)+len(more) <= grafanaText {
			text += more
		}
	}
	if p.Reason != "" && !strings.Contains(p.Summary, p.Reason) {
		add("\n" + html.EscapeString(p.Reason))
	}
	if h := p.HealthEvent; h != nil && h.Message != "" {
		add("\n" + escapeWithinLimit(h.Message, grafanaText/3, html.EscapeString))
	}
	for _, l := range p.Links {
		name := l.Text
		if name == "" {
			name = l.Href
		}
		add("\n" + `<a href="` + html.EscapeString(l.Href) + `">` + html.EscapeString(name) + `</a>`)
	}
	return text
}
