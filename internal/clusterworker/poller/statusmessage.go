package poller

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

const (
	// maxStatusMessage is the longest message. Gardener's errors quote the answers of the
	// provider, which can be pages.
	maxStatusMessage = 2000
	// maxQuote is the longest quotation, and maxErrors the longest text of all errors
	// together. Both leave room for the text around them.
	maxQuote  = 400
	maxErrors = 1200
)

// describeOperationVerb returns the text for an operation in progress and for one that failed.
func describeOperationVerb(op *shoot.Operation) (inProgress, infinitive string) {
	switch op.Type {
	case "Create":
		return "creating the cluster", "create the cluster"
	case "Reconcile":
		return "reconciling the cluster", "reconcile the cluster"
	case operationDelete:
		return "deleting the cluster", "delete the cluster"
	case operationMigrate:
		return "migrating the cluster's control plane", "migrate the cluster's control plane"
	case "Restore":
		return "restoring the cluster's control plane", "restore the cluster's control plane"
	default:
		return "running an operation (" + quoteTruncatedText(op.Type) + ")", "complete an operation (" + quoteTruncatedText(op.Type) + ")"
	}
}

// describeRunningOperation describes the running operation and its progress.
func describeRunningOperation(op *shoot.Operation) string {
	doing, _ := describeOperationVerb(op)
	return fmt.Sprintf("Gardener is %s (%d %%)%s", doing, op.Progress, appendQuotationAndPeriod(collapseAndTruncateText(op.Description)))
}

func describeRetriedFailure(observed *shoot.Observed) string {
	_, to := describeOperationVerb(observed.LastOperation)
	return fmt.Sprintf(
		"Gardener failed to %s (%d %%) and retries%s",
		to,
		observed.LastOperation.Progress,
		appendQuotationAndPeriod(describeFailureCause(observed)),
	)
}

func describeFinalFailure(observed *shoot.Observed) string {
	_, to := describeOperationVerb(observed.LastOperation)
	return fmt.Sprintf(
		"Gardener failed to %s (%d %%) and stopped retrying%s",
		to,
		observed.LastOperation.Progress,
		appendQuotationAndPeriod(describeFailureCause(observed)),
	)
}

// describeDeletion describes the progress of a deletion, with the last error if there is
// one.
func describeDeletion(observed *shoot.Observed) string {
	if observed.LastOperation == nil || observed.LastOperation.Type != operationDelete {
		return "Gardener has not started to delete the cluster yet."
	}
	text := describeRunningOperation(observed.LastOperation)
	if errs := describeLastErrors(observed); errs != "" {
		text += " Last error" + appendQuotationAndPeriod(errs)
	}
	return text
}

// unrequestedDeletionPrefix returns the prefix of a message about a deletion that was not
// requested in the fleet API.
func unrequestedDeletionPrefix(facts RowFacts) string {
	if facts.DeletionWanted {
		return ""
	}
	return "The Shoot was deleted directly in Gardener. "
}

// describeFailureCause returns Gardener's text about an operation that did not succeed.
func describeFailureCause(observed *shoot.Observed) string {
	return cmp.Or(describeLastErrors(observed), collapseAndTruncateText(observed.LastOperation.Description))
}

// describeLastErrors returns the last errors with their codes, which show who has to fix them.
func describeLastErrors(observed *shoot.Observed) string {
	var out []string
	for _, e := range observed.LastErrors {
		text := collapseAndTruncateText(e.Description)
		if len(e.Codes) > 0 {
			text = strings.TrimSpace(text + " [" + collapseAndTruncateText(strings.Join(e.Codes, ", ")) + "]")
		}
		if text != "" {
			out = append(out, text)
		}
	}
	return truncateToBytes(strings.Join(out, "; "), maxErrors)
}

// describeConditions returns the names of conditions with their messages.
func describeConditions(conditions []shoot.Condition) string {
	var out []string
	for _, c := range conditions {
		text := collapseAndTruncateText(c.Type)
		if said := collapseAndTruncateText(cmp.Or(c.Message, c.Reason)); said != "" {
			text += " (" + strings.TrimSuffix(said, ".") + ")"
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ") + "."
}

// appendQuotationAndPeriod ends a sentence, after a quotation if there is one.
func appendQuotationAndPeriod(quotation string) string {
	if quotation == "" {
		return "."
	}
	return ": " + strings.TrimSuffix(quotation, ".") + "."
}

// collapseAndTruncateText returns a quoted text on one line and cut to maxQuote.
func collapseAndTruncateText(text string) string {
	return truncateToBytes(strings.Join(strings.Fields(text), " "), maxQuote)
}

func quoteTruncatedText(text string) string { return strconv.Quote(collapseAndTruncateText(text)) }

// sanitizeAndTruncateMessage returns a message in a form that the database accepts.
func sanitizeAndTruncateMessage(message string) string {
	return truncateToBytes(strings.ReplaceAll(strings.ToValidUTF8(message, "?"), "\x00", ""), maxStatusMessage)
}

// truncateToBytes cuts a text to maxBytes, and marks the cut.
func truncateToBytes(text string, maxBytes int) string {
	const dots = "…"
	if len(text) <= maxBytes {
		return text
	}
	return strings.ToValidUTF8(text[:maxBytes-len(dots)], "") + dots
}
