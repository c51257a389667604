package guard_test

// byAssistant is the spec of an execution that an assistant requests for its user.
var byAssistant = map[string]any{"requestedByAgent": "claude-code 2.1"}

// attacksWithAssistants are on executions that an assistant requests.
func attacksWithAssistants() map[string]attack {
	label := merges(eve, `{"metadata":{"labels":{"seen":"yes"}}}`)
	return map[string]attack{
		"ByTheUserOfTheAssistantThatAsked": {
			"an assistant asks in the name of its user; the policy would let that user approve", &given{by: rosa, spec: byAssistant},
			approves(rosa, rosa), approves(adam, adam),
			[]string{"approvals/eyes", "approvals/eyes-agent"},
			"rosa requested it: ask another person to approve",
		},
		"TickedByTheUserOfTheAssistantThatAsked": {
			"without a name likewise", &given{by: rosa, spec: byAssistant},
			ticks(rosa), ticks(adam),
			[]string{"approvals/eyes", "approvals/eyes-agent", "approvals/ticked"},
			"rosa requested it",
		},
		"RejectedByTheUserOfTheAssistantThatAsked": {
			"a rejection is a decision, too; a user cancels instead", &given{by: rosa, spec: byAssistant},
			decides(rosa, rosa, "Reject", hash), merges(rosa, `{"spec":{"cancel":true}}`),
			[]string{"approvals/eyes", "approvals/eyes-agent"},
			"rosa requested it",
		},
		"NoAssistant": {
			"or the user of the assistant could approve", &given{by: rosa, spec: byAssistant},
			merges(rosa, `{"spec":{"requestedByAgent":null}}`), label, nil, "spec is immutable",
		},
		"OtherAssistant": {
			"the audit would name the wrong one", &given{by: rosa, spec: byAssistant},
			merges(rosa, `{"spec":{"requestedByAgent":"other 1"}}`), label, nil, "spec is immutable",
		},
	}
}
