package changeevent

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestSummarize(t *testing.T) {
	node := func(action string) ChangeEvent {
		return ChangeEvent{Action: action, NodeName: "gpu-01", Source: SourceFaultQuarantine}
	}
	with := func(e ChangeEvent, change func(*ChangeEvent)) ChangeEvent {
		change(&e)
		return e
	}
	coded := with(node(ActionCordon), func(e *ChangeEvent) {
		e.CheckName, e.ErrorCode, e.Message = "xid-check", "XID-79", "GPU error detected"
	})
	execution := func(action string) ChangeEvent {
		return ChangeEvent{Action: action, Subject: "executions/scale-web", Source: SourceExecutionController}
	}
	cases := map[string]struct {
		reason string
		event  ChangeEvent
		want   string
	}{
		"Cordon":          {"the sentence that people know", coded, "NVSentinel cordoned node gpu-01 due to XID-79"},
		"CordonDry":       {"what was not done would have been", with(coded, func(e *ChangeEvent) { e.DryRun = true }), "[DRY-RUN] NVSentinel would have cordoned node gpu-01 due to XID-79"},
		"CordonTwoCodes":  {"several codes read as a list", with(coded, func(e *ChangeEvent) { e.ErrorCodes = []string{"XID-79", "XID-48"} }), "NVSentinel cordoned node gpu-01 due to XID-79, XID-48"},
		"CordonNoCode":    {"without a code the check says it", with(coded, func(e *ChangeEvent) { e.ErrorCode = "" }), "NVSentinel cordoned node gpu-01 due to xid-check"},
		"CordonMessage":   {"without either the message does, on one line", with(coded, func(e *ChangeEvent) { e.ErrorCode, e.CheckName, e.Message = "", "", "GPU fell\n off the bus" }), "NVSentinel cordoned node gpu-01 due to GPU fell off the bus"},
		"CordonReason":    {"then the reason", with(node(ActionCordon), func(e *ChangeEvent) { e.Reason = "maintenance" }), "NVSentinel cordoned node gpu-01 due to maintenance"},
		"CordonNothing":   {"and nothing is left hanging", node(ActionCordon), "NVSentinel cordoned node gpu-01"},
		"CordonFailed":    {"a failure is told as one", with(coded, func(e *ChangeEvent) { e.Outcome, e.Reason = OutcomeFailed, "forbidden" }), "NVSentinel failed to cordon node gpu-01: forbidden"},
		"CordonFailedDry": {"also one that would have been", with(coded, func(e *ChangeEvent) { e.Outcome, e.Reason, e.DryRun = OutcomeFailed, "forbidden", true }), "[DRY-RUN] NVSentinel would have failed to cordon node gpu-01: forbidden"},
		"Uncordon":        {"all is well again", node(ActionUncordon), "NVSentinel uncordoned node gpu-01 - all health checks passed"},
		"UncordonCode":    {"what was wrong has no part in it", with(node(ActionUncordon), func(e *ChangeEvent) { e.ErrorCode = "XID-79" }), "NVSentinel uncordoned node gpu-01 - all health checks passed"},
		"UncordonReason":  {"or another reason", with(node(ActionUncordon), func(e *ChangeEvent) { e.Reason = "released by alice" }), "NVSentinel uncordoned node gpu-01 - released by alice"},
		"UncordonDry":     {"its dry run", with(node(ActionUncordon), func(e *ChangeEvent) { e.DryRun = true }), "[DRY-RUN] NVSentinel would have uncordoned node gpu-01 - all health checks passed"},
		"DrainStarted":    {"a drain", node(ActionDrainStarted), "NVSentinel started draining node gpu-01"},
		"DrainCompleted":  {"its end", node(ActionDrainCompleted), "NVSentinel drained node gpu-01"},
		"DrainCompletedDry": {
			"its end in a dry run", with(node(ActionDrainCompleted), func(e *ChangeEvent) { e.DryRun = true }), "[DRY-RUN] NVSentinel would have drained node gpu-01",
		},
		"DrainFailed":        {"its failure, and why", with(node(ActionDrainFailed), func(e *ChangeEvent) { e.Reason = "shop/web-0 is blocked" }), "NVSentinel failed to drain node gpu-01: shop/web-0 is blocked"},
		"DrainFailedOutcome": {"said once, not twice", with(node(ActionDrainFailed), func(e *ChangeEvent) { e.Outcome = OutcomeFailed }), "NVSentinel failed to drain node gpu-01"},
		"RebootRequested":    {"the object was made", node(ActionRebootRequested), "NVSentinel initiated reboot for gpu-01"},
		"TerminateRequested": {"the object was made", node(ActionTerminateRequested), "NVSentinel initiated termination of gpu-01"},
		"RebootSent":         {"the machine was told", node(ActionRebootSent), "NVSentinel sent the reboot request for gpu-01"},
		"TerminateSent":      {"the provider was told", node(ActionTerminateSent), "NVSentinel sent the termination request for gpu-01"},
		"RebootExecuted":     {"another boot proves it", node(ActionRebootExecuted), "NVSentinel rebooted node gpu-01"},
		"TerminateExecuted":  {"the machine is gone", node(ActionTerminateExecuted), "NVSentinel terminated node gpu-01"},
		"RebootOutcome":      {"it was told in vain", with(node(ActionRebootExecuted), func(e *ChangeEvent) { e.Outcome, e.Reason = OutcomeFailed, "no answer" }), "NVSentinel failed to reboot node gpu-01: no answer"},
		"RebootFailed":       {"the end of a request", with(node(ActionRebootFailed), func(e *ChangeEvent) { e.Reason = "no answer" }), "NVSentinel failed to reboot node gpu-01: no answer"},
		"TerminateFailed":    {"the end of a request", node(ActionTerminateFailed), "NVSentinel failed to terminate node gpu-01"},
		"DrainCancelled":     {"the end of a drain", with(node(ActionDrainCancelled), func(e *ChangeEvent) { e.Reason = "the fault is gone" }), "NVSentinel stopped draining node gpu-01 - the fault is gone"},
		"Override":           {"what people do is not ours", node(ActionOverrideDetected), "NVSentinel detected a manual override on node gpu-01"},
		"OverrideDry":        {"a dry run sees it, too", with(node(ActionOverrideDetected), func(e *ChangeEvent) { e.DryRun = true }), "[DRY-RUN] NVSentinel detected a manual override on node gpu-01"},
		"Budget":             {"an extension", node(ActionBudgetExhausted), "NVSentinel skipped cordoning node gpu-01 - the budget is exhausted"},
		"Support":            {"all that is left", with(coded, func(e *ChangeEvent) { e.Action = ActionSupportRequired }), "NVSentinel requested support for node gpu-01 due to XID-79"},

		"ShootCreated": {"a Shoot", ChangeEvent{Action: ActionShootCreated, Subject: "shoots/garden-dev/web", Source: SourceClusterWorker}, "Fleetloop asked Gardener to create shoot garden-dev/web"},
		"ShootUpdated": {"a Shoot", ChangeEvent{Action: ActionShootUpdated, Subject: "shoots/garden-dev/web", Source: SourceClusterWorker, Reason: "generation 7"}, "Fleetloop asked Gardener to update shoot garden-dev/web"},
		"ShootDeleted": {"a Shoot", ChangeEvent{Action: ActionShootDeleted, Subject: "shoots/garden-dev/web", Source: SourceClusterWorker}, "Gardener deleted shoot garden-dev/web"},
		"ShootReady":   {"seen, not done", ChangeEvent{Action: ActionShootReady, Subject: "shoots/garden-dev/web", Source: SourceClusterWorker}, "Gardener reported shoot garden-dev/web ready"},
		"ShootOfCluster": {
			"people know the cluster",
			ChangeEvent{Action: ActionShootCreated, Cluster: "eu-1", Subject: "shoots/eu1", Source: SourceClusterWorker},
			"Fleetloop asked Gardener to create cluster eu-1 (Shoot eu1)",
		},
		"ShootReadyDry": {
			"Gardener did it, also where we only look on",
			ChangeEvent{Action: ActionShootReady, Cluster: "eu-1", Subject: "shoots/eu1", DryRun: true},
			"[DRY-RUN] Gardener reported cluster eu-1 (Shoot eu1) ready",
		},
		"ShootFailed": {
			"seen, not done",
			ChangeEvent{Action: ActionShootFailed, Subject: "shoots/garden-dev/web", Source: SourceClusterWorker, Message: "no quota"},
			"Gardener failed to reconcile shoot garden-dev/web: no quota",
		},
		"ClusterCreated": {"of a cluster alone", ChangeEvent{Action: ActionClusterCreated, Cluster: "prod", Source: SourceFleetAPI}, "Fleetloop created cluster prod"},
		"ClusterChanged": {"of a node pool", ChangeEvent{Action: ActionClusterChanged, Subject: "nodepools/gpu", Cluster: "prod", Source: SourceFleetAPI}, "Fleetloop changed nodepool gpu"},
		"NodePool":       {"of a node pool", ChangeEvent{Action: "nodepool-created", Subject: "nodepools/gpu", Cluster: "prod", Source: SourceFleetAPI}, "Fleetloop created nodepool gpu"},
		"CreateFailed":   {"in vain", ChangeEvent{Action: ActionShootCreated, Subject: "shoots/a", Source: SourceClusterWorker, Outcome: OutcomeFailed, Reason: "no quota"}, "Fleetloop failed to ask Gardener to create shoot a: no quota"},
		"ClusterDeleted": {"of a cluster alone", ChangeEvent{Action: ActionClusterDeleted, Cluster: "prod", Source: SourceFleetAPI}, "Fleetloop deleted cluster prod"},

		"ExecutionStarted":   {"an execution", execution(ActionExecutionStarted), "Fleetloop started execution scale-web"},
		"ExecutionSucceeded": {"on a node", with(execution(ActionExecutionSucceeded), func(e *ChangeEvent) { e.NodeName = "gpu-01" }), "Fleetloop completed execution scale-web on node gpu-01"},
		"ExecutionFailed":    {"and why", with(execution(ActionExecutionFailed), func(e *ChangeEvent) { e.Reason, e.Outcome = "timed out", OutcomeFailed }), "Fleetloop failed to complete execution scale-web: timed out"},
		"ExecutionApproved": {
			"and by whom", with(execution(ActionExecutionApproved), func(e *ChangeEvent) { e.Details = map[string]string{"actor": "alice"} }),
			"Fleetloop recorded the approval of execution scale-web by alice",
		},
		"ExecutionRejected":   {"and why", with(execution(ActionExecutionRejected), func(e *ChangeEvent) { e.Reason = "not today" }), "Fleetloop recorded the rejection of execution scale-web - not today"},
		"ExecutionRolledBack": {"an execution", execution(ActionExecutionRolledBack), "Fleetloop rolled back execution scale-web"},

		"Unknown":        {"what is not known reads well", with(node("firmware-updated"), func(e *ChangeEvent) { e.ErrorCode = "CVE-1" }), "NVSentinel reported firmware updated on node gpu-01 due to CVE-1"},
		"UnknownDry":     {"in a dry run as well", with(node("firmware-updated"), func(e *ChangeEvent) { e.DryRun = true }), "[DRY-RUN] NVSentinel would have reported firmware updated on node gpu-01"},
		"UnknownNothing": {"with nothing else", ChangeEvent{Action: "moved"}, "NVSentinel reported moved"},
		"Empty":          {"with nothing at all", ChangeEvent{}, "NVSentinel reported a change"},
		"OtherSource":    {"another product has its name", with(coded, func(e *ChangeEvent) { e.Source = "acme/cordoner" }), "acme cordoned node gpu-01 due to XID-79"},
		"CordonNoNode":   {"no node, and it still reads", ChangeEvent{Action: ActionCordon, Cluster: "prod"}, "NVSentinel cordoned cluster prod"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Summarize(tc.event); got != tc.want {
				t.Errorf("%s: Summarize = %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

// anEvent draws events with text that is long, broken or hostile.
func anEvent(t *rapid.T) *ChangeEvent {
	text := rapid.OneOf(
		rapid.Just(""), rapid.StringN(0, 30, -1), rapid.SampledFrom([]string{"gpu-01", "a/b", "..", "<!channel>", "x|y", "{node}", "\xff\xfe", "a\r\nb: c", "%41", "\u2028", "\ufffe", `"&<>`}),
		rapid.Custom(func(t *rapid.T) string {
			return strings.Repeat(rapid.SampledFrom([]string{"a", "&", "é", "\U0001F680", "\n", "\x00", "日"}).Draw(t, "of"), rapid.IntRange(0, 6000).Draw(t, "times"))
		}),
	)
	action := rapid.OneOf(rapid.SampledFrom([]string{ActionCordon, ActionUncordon, ActionDrainFailed, ActionExecutionApproved, "else"}), text)
	e := &ChangeEvent{
		Action: action.Draw(t, "action"), NodeName: text.Draw(t, "node"), Subject: text.Draw(t, "subject"), CheckName: text.Draw(t, "check"),
		ErrorCode: text.Draw(t, "code"), ErrorCodes: rapid.SliceOfN(text, 0, 80).Draw(t, "codes"), Agent: text.Draw(t, "agent"),
		IsFatal: rapid.Bool().Draw(t, "fatal"), Message: text.Draw(t, "message"), Reason: text.Draw(t, "reason"), DryRun: rapid.Bool().Draw(t, "dry"),
		ID: text.Draw(t, "id"), Summary: text.Draw(t, "summary"), Session: text.Draw(t, "session"), Source: text.Draw(t, "source"), Cluster: text.Draw(t, "cluster"),
		Outcome: rapid.SampledFrom([]string{"", OutcomeFailed, OutcomeSucceeded, "odd"}).Draw(t, "outcome"),
		Details: rapid.MapOfN(text, text, 0, 40).Draw(t, "details"), Timestamp: aTime(t),
	}
	for _, href := range rapid.SliceOfN(text, 0, 20).Draw(t, "links") {
		e.Links = append(e.Links, Link{Href: "https://runbooks.example.com/" + href, Text: href})
	}
	return e
}

func TestSummaryIsOneLine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := anEvent(t)
		for _, got := range []string{Summarize(*e), NewPayload(*e).Summary} {
			switch {
			case got == "", !utf8.ValidString(got), strings.ContainsAny(got, "\n\r\x00"), utf8.RuneCountInString(got) > maxSummary:
				t.Fatalf("summary %q", got)
			case strings.HasPrefix(got, dryRunMark) != e.DryRun && e.Summary == "":
				t.Fatalf("summary %q of a dry run: %t", got, e.DryRun)
			case e.DryRun && !strings.HasPrefix(got, dryRunMark):
				t.Fatalf("summary %q does not say that it is of a dry run", got)
			}
		}
	})
}
