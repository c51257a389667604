package changeevent

import (
	"cmp"
	"maps"
)

// keyLength is the length of an integration key of PagerDuty.
const keyLength = 32

// A pagerDutyEvent is a change event of PagerDuty's Events API v2.
type pagerDutyEvent struct {
	RoutingKey string           `json:"routing_key"`
	Payload    pagerDutyPayload `json:"payload"`
	Links      []Link           `json:"links,omitempty"`
}

type pagerDutyPayload struct {
	Summary   string `json:"summary"`
	Source    string `json:"source,omitempty"`
	Timestamp string `json:"timestamp"`
	Details   any    `json:"custom_details"`
}

// validateRoutingKey returns an error if the credential of the body is invalid. The error does
// not contain it.
func validateRoutingKey(f Format, key string) error {
	switch {
	case !formatSpecOrJSON(f).key:
		return nil
	case key == "":
		return errNoKey
	case len(key) != keyLength:
		return errKeyLength
	}
	return nil
}

func encodePagerDuty(cfg encodeSettings, e *ChangeEvent) (request, error) {
	if err := validateRoutingKey(FormatPagerDuty, cfg.key); err != nil {
		return request{}, err
	}
	p := newPayload(cfg, e)
	body, err := marshalJSONWithoutHTMLEscapes(pagerDutyEvent{
		RoutingKey: cfg.key,
		Payload: pagerDutyPayload{
			Summary: p.Summary, Source: cmp.Or(p.Node, p.Subject, p.Cluster), Timestamp: p.Timestamp, Details: flattenPayload(p),
		},
		Links: p.Links,
	})
	if err != nil {
		return request{}, err
	}
	return request{body: body, contentType: typeJSON}, nil
}

// flattenPayload returns the fields of a payload under flat names, for sinks that show a
// table of names and values. A field replaces a detail of the same name.
func flattenPayload(p Payload) map[string]any {
	all := make(map[string]any, 16+len(p.Details))
	for key, value := range p.Details {
		all[key] = value
	}
	maps.Copy(all, map[string]any{"action": p.Action, "component": p.Source, "outcome": p.Outcome, "dry_run": p.DryRun, "event_id": p.ID})
	text := map[string]string{"cluster": p.Cluster, "node": p.Node, "subject": p.Subject, "reason": p.Reason, "session": p.Session}
	if h := p.HealthEvent; h != nil {
		maps.Copy(text, map[string]string{"check": h.CheckName, "error_code": h.ErrorCode, "agent": h.Agent, "message": h.Message})
		all["fatal"] = h.IsFatal
	}
	for key, value := range text {
		if value != "" {
			all[key] = value
		}
	}
	return all
}
