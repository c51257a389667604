package changeevent

import (
	"cmp"
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
			Summary:   p.Summary,
			Source:    cmp.Or(p.Node, p.Subject, p.Cluster),
			Timestamp: p.Timestamp,
			Details:   flattenPayload(p),
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
	flat := make(map[string]any, 16+len(p.Details))
	for key, value := range p.Details {
		flat[key] = value
	}
	flat["action"] = p.Action
	flat["component"] = p.Source
	flat["outcome"] = p.Outcome
	flat["dry_run"] = p.DryRun
	flat["event_id"] = p.ID

	// These are omitted if they are empty.
	texts := map[string]string{
		"cluster": p.Cluster,
		"node":    p.Node,
		"subject": p.Subject,
		"reason":  p.Reason,
		"session": p.Session,
	}
	if h := p.HealthEvent; h != nil {
		flat["fatal"] = h.IsFatal
		texts["check"] = h.CheckName
		texts["error_code"] = h.ErrorCode
		texts["agent"] = h.Agent
		texts["message"] = h.Message
	}
	for key, text := range texts {
		if text != "" {
			flat[key] = text
		}
	}
	return flat
}
