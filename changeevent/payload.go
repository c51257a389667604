package changeevent

// A Payload is a change event in the default format, which the fleet API accepts.
// Its fields correspond to the fields of ChangeEvent.
//
// New fields may be added. Existing fields are not removed and keep their meaning.
type Payload struct {
	Action string `json:"action"`
	// Timestamp is RFC 3339 in UTC with three decimals. Readers also take the
	// form without a colon in the offset (2025-08-26T14:42:58.315+0000).
	Timestamp   string       `json:"timestamp"`
	Source      string       `json:"source"`
	Cluster     string       `json:"cluster"`
	Node        string       `json:"node"`
	HealthEvent *HealthEvent `json:"healthEvent,omitempty"`
	DryRun      bool         `json:"dryRun"`

	ID      string            `json:"id,omitempty"`
	Subject string            `json:"subject,omitempty"`
	Summary string            `json:"summary,omitempty"`
	Outcome string            `json:"outcome,omitempty"`
	Reason  string            `json:"reason,omitempty"`
	Session string            `json:"session,omitempty"`
	Links   []Link            `json:"links,omitempty"`
	Details map[string]string `json:"details,omitempty"`

	Changes        []FieldChange `json:"changes,omitempty"`
	ChangesOmitted int           `json:"changesOmitted,omitempty"`
}

// withBaseFieldsOnly returns all fields that ADR-026 defines, and no others.
func withBaseFieldsOnly(p Payload) Payload {
	health := HealthEvent{}
	if p.HealthEvent != nil {
		health = *p.HealthEvent
		health.ErrorCodes = nil
	}
	return Payload{
		Action: p.Action, Timestamp: p.Timestamp, Source: p.Source, Cluster: p.Cluster, Node: p.Node, HealthEvent: &health, DryRun: p.DryRun,
	}
}

// A HealthEvent is the health report that caused a change.
type HealthEvent struct {
	CheckName  string   `json:"checkName"`
	ErrorCode  string   `json:"errorCode"`
	Agent      string   `json:"agent"`
	IsFatal    bool     `json:"isFatal"`
	Message    string   `json:"message"`
	ErrorCodes []string `json:"errorCodes,omitempty"`
}
