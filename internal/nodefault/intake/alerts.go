package intake

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
)

// AlertConfig maps alerts to faults. If an alert does not have a label, the annotation of
// the same name is used.
type AlertConfig struct {
	Source string `key:"source" env:"NODE_FAULT_ALERT_SOURCE" default:"alertmanager" validate:"required,max=128" doc:"Source of the faults that alerts create."`

	NodeLabels []string `key:"node_labels" env:"NODE_FAULT_ALERT_NODE_LABELS" default:"node,kubernetes_node,nodename,instance" validate:"min=1" doc:"Labels with the name of the node; the first that an alert has is used. A port is removed, and an IP address is mapped to its node."`

	EntityLabels []string `key:"entity_labels" env:"NODE_FAULT_ALERT_ENTITY_LABELS" doc:"Labels that distinguish alerts with the same name on the same node, such as gpu or device; empty means all labels, by the fingerprint of the alert."`

	CodeLabels []string `key:"code_labels" env:"NODE_FAULT_ALERT_CODE_LABELS" default:"error_code,xid" doc:"Labels with the error code; the name of the alert is used if none is set."`

	ActionLabels []string `key:"action_labels" env:"NODE_FAULT_ALERT_ACTION_LABELS" default:"recommended_action" doc:"Labels with the recommended action, such as RESTART_VM."`

	ClassLabels []string `key:"class_labels" env:"NODE_FAULT_ALERT_CLASS_LABELS" default:"component_class,component" doc:"Labels with the class of the component."`

	SeverityLabel string `key:"severity_label" env:"NODE_FAULT_ALERT_SEVERITY_LABEL" default:"severity" doc:"Label with the severity."`

	FatalSeverities []string `key:"fatal_severities" env:"NODE_FAULT_ALERT_FATAL_SEVERITIES" default:"critical,fatal" doc:"Severities that make a fault fatal."`
}

// DefaultAlertConfig returns the default mapping.
func DefaultAlertConfig() AlertConfig {
	return AlertConfig{
		Source:          "alertmanager",
		NodeLabels:      []string{"node", "kubernetes_node", "nodename", "instance"},
		CodeLabels:      []string{"error_code", "xid"},
		ActionLabels:    []string{"recommended_action"},
		ClassLabels:     []string{"component_class", "component"},
		SeverityLabel:   "severity",
		FatalSeverities: []string{"critical", "fatal"},
	}
}

// An alertNotification is version 4 of the webhook payload of Alertmanager.
type alertNotification struct {
	Version string  `json:"version"`
	Alerts  []alert `json:"alerts"`
}

type alert struct {
	Status      string             `json:"status"`
	Labels      map[string]string  `json:"labels"`
	Annotations map[string]string  `json:"annotations"`
	StartsAt    rfc3339OrProtoTime `json:"startsAt"`
	EndsAt      rfc3339OrProtoTime `json:"endsAt"`
	Fingerprint string             `json:"fingerprint"`
}

// decodeAlertNotification converts the alerts of a notification to events.
func (c AlertConfig) decodeAlertNotification(
	ctx context.Context, body []byte, nodeAt func(context.Context, string) (string, error),
) ([]eventOrError, error) {
	alerts, err := decodeAlerts(body)
	if err != nil {
		return nil, err
	}
	events := make([]eventOrError, len(alerts))
	for i, a := range alerts {
		event, err := c.convertAlertToEvent(a)
		if err == nil {
			event.Node, err = resolveNodeAddress(ctx, event.Node, nodeAt)
		}
		events[i] = eventOrError{event, err}
	}
	return events, nil
}

// decodeAlerts parses a notification.
func decodeAlerts(body []byte) ([]alert, error) {
	var n alertNotification
	if err := json.Unmarshal(body, &n); err != nil {
		return nil, fmt.Errorf("body is not an Alertmanager notification: %w", err)
	}
	switch {
	case n.Version != "4":
		return nil, fmt.Errorf("version is %q, want \"4\": send Alertmanager webhook notifications to this endpoint", n.Version)
	case len(n.Alerts) == 0:
		return nil, errNoEvents
	case len(n.Alerts) > maxRequestEvents:
		return nil, errTooManyEvents
	}
	return n.Alerts, nil
}

// convertAlertToEvent converts an alert to a health event.
func (c AlertConfig) convertAlertToEvent(a alert) (Event, error) {
	severity := a.firstLabelOrAnnotation([]string{c.SeverityLabel})
	e := Event{
		Agent:          c.Source,
		Check:          a.Labels["alertname"],
		ComponentClass: a.firstLabelOrAnnotation(c.ClassLabels),
		Action:         a.firstLabelOrAnnotation(c.ActionLabels),
		Fatal:          slices.Contains(c.FatalSeverities, severity),
		Message:        a.joinMessageAnnotations(),
		Entities:       c.entitiesOrFingerprintOf(a),
		At:             a.StartsAt.Time,
	}
	switch a.Status {
	case "firing":
	case "resolved":
		e.Healthy, e.At = true, a.EndsAt.Time
	default:
		return e, fmt.Errorf("%w: status is %q, want firing or resolved", ErrInvalid, a.Status)
	}
	if e.Check == "" {
		return e, fmt.Errorf("%w: alert has no label alertname", ErrInvalid)
	}
	e.ErrorCodes = []string{e.Check}
	if code := a.firstLabelOrAnnotation(c.CodeLabels); code != "" {
		e.ErrorCodes = strings.Split(code, ",")
	}
	e.Node = stripPort(a.firstLabelOrAnnotation(c.NodeLabels))
	if e.Node == "" {
		return e, fmt.Errorf("%w: alert %q has none of the labels %s that name a node",
			ErrInvalid, e.Check, strings.Join(c.NodeLabels, ", "))
	}
	return e, nil
}

// entitiesOrFingerprintOf returns the entities that distinguish alerts of one name on one node, so
// that a resolved alert does not resolve another.
func (c AlertConfig) entitiesOrFingerprintOf(a alert) []Entity {
	var out []Entity
	for _, name := range c.EntityLabels {
		if v := a.Labels[name]; v != "" {
			out = append(out, Entity{Type: name, Value: v})
		}
	}
	if len(c.EntityLabels) > 0 {
		return out
	}
	if a.Fingerprint == "" {
		a.Fingerprint = alertFingerprint(a.Labels)
	}
	return []Entity{{Type: "alert", Value: a.Fingerprint}}
}

func alertFingerprint(labels map[string]string) string {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		fmt.Fprintf(&text, "%q=%q,", name, labels[name])
	}
	return shortSHA256(text.String())
}

// firstLabelOrAnnotation returns the value of the first label that the alert has.
func (a alert) firstLabelOrAnnotation(names []string) string {
	for _, from := range []map[string]string{a.Labels, a.Annotations} {
		for _, name := range names {
			if v := from[name]; v != "" {
				return v
			}
		}
	}
	return ""
}

func (a alert) joinMessageAnnotations() string {
	var parts []string
	for _, name := range []string{"summary", "description", "message"} {
		if v := strings.TrimSpace(a.Annotations[name]); v != "" && !slices.Contains(parts, v) {
			parts = append(parts, v)
		}
	}
	return strings.Join(parts, ": ")
}

// stripPort removes the port of a value, as in the label instance.
func stripPort(value string) string {
	if h, _, err := net.SplitHostPort(value); err == nil {
		return h
	}
	return strings.Trim(value, "[]")
}

// resolveNodeAddress returns the name of a node from its name or its IP address.
func resolveNodeAddress(
	ctx context.Context, node string, nodeAt func(context.Context, string) (string, error),
) (name string, err error) {
	if nodeAt == nil || net.ParseIP(node) == nil {
		return node, nil
	}
	return nodeAt(ctx, node)
}
