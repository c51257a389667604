package changeevent

import (
	"cmp"
	"strings"
)

// maxSummary limits the characters of a summary, to the limit of PagerDuty.
const maxSummary = 1024

// maxWhy limits the characters of a message or a reason in a summary.
const maxWhy = 300

// dryRunMark is the prefix of the summary of a dry run.
const dryRunMark = "[DRY-RUN] "

// allPassed is the default reason of an uncordon.
const allPassed = "all health checks passed"

// Summarize describes an event in one line: the actor, the action, the object and
// the cause.
//
//	NVSentinel cordoned node gpu-node-01 due to XID-79
//	alice changed spec.version 1.34 → 1.35 of my-cluster
//	[DRY-RUN] NVSentinel would have cordoned node gpu-node-01 due to XID-79
//
// It ignores the field Summary.
func Summarize(e ChangeEvent) string { return summarize(&e, "") }

// summarize is Summarize with the name of the sender. An empty product means the name
// from the source.
func summarize(e *ChangeEvent, product string) string {
	s := sentenceOf(e)
	var line strings.Builder
	if e.DryRun {
		line.WriteString(dryRunMark)
	}
	line.WriteString(actorName(e, s, product))
	line.WriteByte(' ')
	switch {
	case e.Outcome == OutcomeFailed && s.plain != "":
		if e.DryRun {
			line.WriteString("would have ")
		}
		line.WriteString("failed to " + s.plain)
		s.why = failureReason
	case e.DryRun && !s.seen:
		line.WriteString("would have " + s.done)
	default:
		line.WriteString(s.done)
	}
	if object := s.object(e); object != "" {
		line.WriteString(" " + object)
	}
	line.WriteString(s.why(e))
	return truncateText(sanitizeLine(line.String()), maxSummary)
}

// actorName returns the actor: the system that the sentence names, the person if known, or
// the product.
func actorName(e *ChangeEvent, s sentence, product string) string {
	if s.actor != "" {
		return s.actor
	}
	if s.byPerson {
		if who := personName(e); who != "" {
			return who
		}
	}
	return productName(product, e.Source)
}

// personName returns the person of the details, if there is one, and who impersonated it. Each name is
// truncated, so that a long one cannot hide the other.
func personName(e *ChangeEvent) string {
	actor := truncateText(sanitizeLine(e.Details[DetailActor]), maxName)
	impersonator := truncateText(sanitizeLine(e.Details[DetailImpersonatedBy]), maxName)
	if actor == "" || impersonator == "" {
		return actor
	}
	return actor + " (impersonated by " + impersonator + ")"
}

// productName returns the name of a sender: the configured product, or the part of the
// source before the slash.
func productName(configured, source string) string {
	if name := sanitizeLine(configured); name != "" {
		return name
	}
	product, _, _ := strings.Cut(source, "/")
	switch strings.ToLower(product) {
	case "", "nvsentinel":
		return ProductNVSentinel
	case "fleetloop":
		return ProductFleetloop
	}
	return product
}

// A sentence describes an action in words.
type sentence struct {
	// actor is the system that acted. Empty means the sender.
	actor string
	// done is the verb in the past tense. It also follows "would have".
	done string
	// plain is the verb after "failed to". If it is empty, a failure is described by
	// done.
	plain string
	// seen marks an observation rather than an action. It reads the same in a dry run.
	seen bool
	// byPerson names the person of the details, if there is one, as the actor.
	byPerson bool
	object   func(e *ChangeEvent) string
	why      func(e *ChangeEvent) string
}

// sentenceOf returns the sentence of an event's action. An unknown action is reported by its name.
func sentenceOf(e *ChangeEvent) sentence {
	if s, hasFields := fieldChangeSentence(e); hasFields {
		return s
	}
	groups := []func(action string) (described sentence, known bool){
		quarantineSentence,
		remedySentence,
		cancelledOrOptionalSentence,
		clusterSentence,
		shootSentence,
		executionSentence,
	}
	for _, describeAction := range groups {
		if s, known := describeAction(e.Action); known {
			return s
		}
	}
	actionWords := strings.NewReplacer("-", " ", "_", " ").Replace(e.Action)
	return sentence{
		done:   "reported " + cmp.Or(actionWords, "a change"),
		object: describeOnSubject,
		why:    dueToCause,
	}
}

func quarantineSentence(action string) (described sentence, known bool) {
	switch action {
	case ActionCordon:
		return sentence{done: "cordoned", plain: "cordon", object: describeNode, why: dueToCause}, true
	case ActionUncordon:
		return sentence{done: "uncordoned", plain: "uncordon", object: describeNode, why: reasonOr(allPassed)}, true
	case ActionDrainStarted:
		return sentence{done: "started draining", plain: "start draining", object: describeNode, why: noCause}, true
	case ActionDrainCompleted:
		return sentence{done: "drained", plain: "drain", object: describeNode, why: noCause}, true
	case ActionDrainFailed:
		return sentence{done: "failed to drain", object: describeNode, why: failureReason}, true
	}
	return sentence{}, false
}

func remedySentence(action string) (described sentence, known bool) {
	switch action {
	case ActionRebootRequested:
		return sentence{done: "initiated reboot for", plain: "initiate reboot for", object: nodeNameOrSubject, why: noCause}, true
	case ActionTerminateRequested:
		return sentence{done: "initiated termination of", plain: "initiate termination of", object: nodeNameOrSubject, why: noCause}, true
	case ActionRebootSent:
		return sentence{done: "sent the reboot request for", plain: "send the reboot request for", object: nodeNameOrSubject, why: noCause}, true
	case ActionTerminateSent:
		return sentence{
			done:   "sent the termination request for",
			plain:  "send the termination request for",
			object: nodeNameOrSubject,
			why:    noCause,
		}, true
	case ActionRebootExecuted:
		return sentence{done: "rebooted", plain: "reboot", object: describeNode, why: noCause}, true
	case ActionTerminateExecuted:
		return sentence{done: "terminated", plain: "terminate", object: describeNode, why: noCause}, true
	case ActionRebootFailed:
		return sentence{done: "failed to reboot", object: describeNode, why: failureReason}, true
	case ActionTerminateFailed:
		return sentence{done: "failed to terminate", object: describeNode, why: failureReason}, true
	}
	return sentence{}, false
}

func cancelledOrOptionalSentence(action string) (described sentence, known bool) {
	switch action {
	case ActionDrainCancelled:
		return sentence{done: "stopped draining", object: describeNode, why: reasonOr("")}, true
	case ActionOverrideDetected:
		return sentence{done: "detected a manual override on", seen: true, object: describeNode, why: reasonOr("")}, true
	case ActionBudgetExhausted:
		return sentence{done: "skipped cordoning", object: describeNode, why: reasonOr("the budget is exhausted")}, true
	case ActionSupportRequired:
		return sentence{done: "requested support for", object: describeNode, why: dueToCause}, true
	}
	return sentence{}, false
}

func clusterSentence(action string) (described sentence, known bool) {
	kind, done, _ := strings.Cut(action, "-")
	if kind != "cluster" && kind != "nodepool" {
		return sentence{}, false
	}
	switch done {
	case "created", "updated", "changed", "deleted":
		return sentence{
			done:     done,
			plain:    strings.TrimSuffix(done, "d"),
			byPerson: true,
			object:   describeSubject,
			why:      reasonOr(""),
		}, true
	}
	return sentence{}, false
}

func shootSentence(action string) (described sentence, known bool) {
	const gardener = "Gardener"
	switch action {
	case ActionShootCreated:
		return sentence{done: "asked Gardener to create", plain: "ask Gardener to create", object: describeClusterAndShoot, why: noCause}, true
	case ActionShootUpdated:
		return sentence{done: "asked Gardener to update", plain: "ask Gardener to update", object: describeClusterAndShoot, why: noCause}, true
	case ActionShootDeleted:
		return sentence{actor: gardener, done: "deleted", seen: true, object: describeClusterAndShoot, why: noCause}, true
	case ActionShootReady:
		return sentence{
			actor:  gardener,
			done:   "reported",
			seen:   true,
			object: describeClusterAndShoot,
			why:    func(*ChangeEvent) string { return " ready" },
		}, true
	case ActionShootFailed:
		return sentence{actor: gardener, done: "failed to reconcile", seen: true, object: describeClusterAndShoot, why: failureReason}, true
	}
	return sentence{}, false
}

// describeClusterAndShoot returns the cluster with the name of its Shoot, because people know the
// cluster.
func describeClusterAndShoot(e *ChangeEvent) string {
	if e.Cluster == "" {
		return describeSubject(e)
	}
	object := "cluster " + e.Cluster
	if shoot := strings.TrimPrefix(e.Subject, "shoots/"); shoot != "" {
		object += " (Shoot " + shoot + ")"
	}
	return object
}

// fieldChangeSentence returns the sentence for changed fields. It omits the reason, which would only
// repeat the fields.
func fieldChangeSentence(e *ChangeEvent) (described sentence, hasFields bool) {
	kind, done, _ := strings.Cut(e.Action, "-")
	if done != "changed" && done != "updated" {
		return sentence{}, false
	}
	fields, omitted := redactedFieldChanges(e)
	if len(fields) == 0 {
		return sentence{}, false
	}
	text := " " + summarizeBeforeAndAfter(fields, omitted) + " of"
	return sentence{
		done:     done + text,
		plain:    strings.TrimSuffix(done, "d") + text,
		byPerson: true,
		object:   newChangedObjectDescriber(kind),
		why:      noCause,
	}, true
}

// newChangedObjectDescriber returns a cluster by its name alone, and any other object with its cluster.
func newChangedObjectDescriber(kind string) func(e *ChangeEvent) string {
	return func(e *ChangeEvent) string {
		object := describeSubject(e)
		switch {
		case kind == "cluster" && e.NodeName == "":
			return strings.TrimPrefix(object, "cluster ")
		case e.Cluster != "" && e.Subject != "":
			return object + " of " + e.Cluster
		}
		return object
	}
}

func executionSentence(action string) (described sentence, known bool) {
	switch action {
	case ActionExecutionStarted:
		return sentence{done: "started", plain: "start", object: describeSubject, why: reasonOr("")}, true
	case ActionExecutionSucceeded:
		return sentence{done: "completed", plain: "complete", object: describeSubject, why: reasonOr("")}, true
	case ActionExecutionFailed:
		return sentence{done: "failed to complete", object: describeSubject, why: failureReason}, true
	case ActionExecutionApproved:
		return sentence{done: "recorded the approval of", seen: true, object: describeSubject, why: byPersonWithReason}, true
	case ActionExecutionRejected:
		return sentence{done: "recorded the rejection of", seen: true, object: describeSubject, why: byPersonWithReason}, true
	case ActionExecutionRolledBack:
		return sentence{done: "rolled back", plain: "roll back", object: describeSubject, why: reasonOr("")}, true
	}
	return sentence{}, false
}

// describeNode returns the object of an action on a node.
func describeNode(e *ChangeEvent) string {
	if e.NodeName != "" {
		return "node " + e.NodeName
	}
	return describeSubject(e)
}

// nodeNameOrSubject is describeNode without the word "node".
func nodeNameOrSubject(e *ChangeEvent) string { return cmp.Or(e.NodeName, describeSubject(e)) }

// describeSubject returns "execution scale-web" for "executions/scale-web", with the node
// if there is one. Without a subject it returns the node or the cluster.
func describeSubject(e *ChangeEvent) string {
	kind, rest, ok := strings.Cut(e.Subject, "/")
	object := e.Subject
	if ok {
		object = strings.TrimSuffix(kind, "s") + " " + rest
	}
	switch {
	case object != "" && e.NodeName != "":
		return object + " on node " + e.NodeName
	case object != "":
		return object
	case e.NodeName != "":
		return "node " + e.NodeName
	case e.Cluster != "":
		return "cluster " + e.Cluster
	}
	return ""
}

// describeOnSubject returns the object of an unknown action.
func describeOnSubject(e *ChangeEvent) string {
	if object := describeSubject(e); object != "" {
		return "on " + object
	}
	return ""
}

func noCause(*ChangeEvent) string { return "" }

// dueToCause returns the first of the error codes, the check, the message and the reason.
func dueToCause(e *ChangeEvent) string {
	why := cmp.Or(strings.Join(e.ErrorCodes, ", "), e.ErrorCode, e.CheckName, e.Message, e.Reason)
	if why == "" {
		return ""
	}
	return " due to " + sanitizeAndTruncateCause(why)
}

// reasonOr returns the reason, or fallback if the event has no reason.
func reasonOr(fallback string) func(e *ChangeEvent) string {
	return func(e *ChangeEvent) string {
		if why := cmp.Or(e.Reason, fallback); why != "" {
			return " - " + sanitizeAndTruncateCause(why)
		}
		return ""
	}
}

// failureReason returns the reason, or the message if the event has no reason.
func failureReason(e *ChangeEvent) string {
	if why := cmp.Or(e.Reason, e.Message); why != "" {
		return ": " + sanitizeAndTruncateCause(why)
	}
	return ""
}

// byPersonWithReason returns the person who decided, from DetailActor, and the reason.
func byPersonWithReason(e *ChangeEvent) string {
	text := reasonOr("")(e)
	if who := personName(e); who != "" {
		return " by " + who + text
	}
	return text
}

func sanitizeAndTruncateCause(why string) string { return truncateText(sanitizeLine(why), maxWhy) }
