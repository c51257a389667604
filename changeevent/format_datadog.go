package changeevent

import (
	"cmp"
	"strings"
)

// Limits of Datadog, in characters.
const (
	maxDatadogTitle    = 500
	maxDatadogMessage  = 4000
	maxDatadogKey      = 100
	maxDatadogResource = 128
	maxDatadogTag      = 200
)

// A datadogEvent is an event of category change of Datadog's Events API v2.
type datadogEvent struct {
	Data datadogData `json:"data"`
}

type datadogData struct {
	Type       string            `json:"type"`
	Attributes datadogAttributes `json:"attributes"`
}

type datadogAttributes struct {
	Category       string        `json:"category"`
	Title          string        `json:"title"`
	Message        string        `json:"message,omitempty"`
	Host           string        `json:"host,omitempty"`
	Timestamp      string        `json:"timestamp"`
	Tags           []string      `json:"tags"`
	AggregationKey string        `json:"aggregation_key,omitempty"`
	IntegrationID  string        `json:"integration_id"`
	Attributes     datadogChange `json:"attributes"`
}

type datadogChange struct {
	Resource datadogName    `json:"changed_resource"`
	Author   datadogName    `json:"author"`
	Before   map[string]any `json:"prev_value,omitempty"`
	After    map[string]any `json:"new_value,omitempty"`
	Metadata map[string]any `json:"change_metadata"`
}

type datadogName struct {
	Type string `json:"type"`
	Name string `json:"name"`
}

func encodeDatadog(cfg encodeSettings, e *ChangeEvent) (request, error) {
	p := newPayload(cfg, e)
	changed := cmp.Or(p.Node, p.Subject, p.Cluster, p.Action) // the most specific name
	author := cmp.Or(p.Source, productName(cfg.product, ""))
	before, after := unschedulableChange(p)
	change := datadogChange{
		// Datadog has no type for nodes; a configuration is the closest.
		Resource: datadogName{Type: "configuration", Name: truncateText(changed, maxDatadogResource)},
		Author:   datadogName{Type: "system", Name: truncateText(author, maxDatadogResource)},
		Before:   before,
		After:    after,
		Metadata: flattenPayload(p),
	}
	event := datadogAttributes{
		Category:       "change",
		Title:          truncateText(p.Summary, maxDatadogTitle),
		Message:        truncateText(reasonMessageAndLinks(p), maxDatadogMessage),
		Host:           p.Node,
		Timestamp:      p.Timestamp,
		Tags:           truncatedDatadogTags(p),
		AggregationKey: truncateText(cmp.Or(p.Session, p.ID), maxDatadogKey), // groups the events of a repair
		IntegrationID:  "custom-events",
		Attributes:     change,
	}
	body, err := marshalJSONWithoutHTMLEscapes(datadogEvent{Data: datadogData{Type: "event", Attributes: event}})
	if err != nil {
		return request{}, err
	}
	return request{body: body, contentType: typeJSON}, nil
}

// unschedulableChange returns the state before and after a cordon or uncordon. It returns nil for
// other actions, dry runs and failures.
func unschedulableChange(p Payload) (before, after map[string]any) {
	if p.DryRun || p.Outcome == OutcomeFailed {
		return nil, nil
	}
	value := func(unschedulable bool) map[string]any { return map[string]any{"unschedulable": unschedulable} }
	switch p.Action {
	case ActionCordon:
		return value(false), value(true)
	case ActionUncordon:
		return value(true), value(false)
	}
	return nil, nil
}

func truncatedDatadogTags(p Payload) []string {
	tags := make([]string, 0, 8)
	for _, tag := range buildSearchTags(p) {
		tags = append(tags, truncateText(tag, maxDatadogTag))
	}
	return tags
}

// buildSearchTags returns the tags that events are searched by, as name:value.
func buildSearchTags(p Payload) []string {
	tags := []string{"action:" + p.Action}
	for _, tag := range [...][2]string{
		{"cluster", p.Cluster}, {"node", p.Node}, {"source", p.Source}, {"session", p.Session}, {"outcome", p.Outcome},
	} {
		if tag[1] != "" {
			tags = append(tags, tag[0]+":"+tag[1])
		}
	}
	if p.HealthEvent != nil && p.HealthEvent.CheckName != "" {
		tags = append(tags, "check:"+p.HealthEvent.CheckName)
	}
	if p.DryRun {
		tags = append(tags, "dry_run:true")
	}
	return tags
}

// reasonMessageAndLinks returns the details that the summary omits: the reason, the message and the
// links, one per line.
func reasonMessageAndLinks(p Payload) string {
	var lines []string
	if p.Reason != "" {
		lines = append(lines, p.Reason)
	}
	if p.HealthEvent != nil && p.HealthEvent.Message != "" {
		lines = append(lines, p.HealthEvent.Message)
	}
	for _, l := range p.Links {
		lines = append(lines, strings.TrimPrefix(l.Text+": "+l.Href, ": "))
	}
	return strings.Join(lines, "\n")
}
