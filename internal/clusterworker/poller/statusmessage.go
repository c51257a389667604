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

// operationText returns the text for an operation in progress and for one that failed.
func operationText(op *shoot.Operation) (inProgress, infinitive string) {
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
		return "running an operation (" + quoteText(op.Type) + ")", "complete an operation (" + quoteText(op.Type) + ")"
	}
}

// describeOperation describes the running operation and its progress.
func describeOperation(op *shoot.Operation) string {
	doing, _ := operationText(op)
	return fmt.Sprintf("Gardener is %s (%d %%)%s", doing, op.Progress, endWithQuotation(quotation(op.Description)))
}

func describeRetry(o *shoot.Observed) string {
	_, to := operationText(o.LastOperation)
	return fmt.Sprintf("Gardener failed to %s (%d %%) and retries%s", to, o.LastOperation.Progress, endWithQuotation(failureText(o)))
}

func describeFailure(o *shoot.Observed) string {
	_, to := operationText(o.LastOperation)
	return fmt.Sprintf("Gardener failed to %s (%d %%) and stopped retrying%s", to, o.LastOperation.Progress, endWithQuotation(failureText(o)))
}

// deletionText describes the progress of a deletion, with the last error if there is
// one.
func deletionText(o *shoot.Observed) string {
	if o.LastOperation == nil || o.LastOperation.Type != operationDelete {
		return "Gardener has not started to delete the cluster yet."
	}
	text := describeOperation(o.LastOperation)
	if errs := describeErrors(o); errs != "" {
		text += " Last error" + endWithQuotation(errs)
	}
	return text
}

// unrequestedPrefix returns the prefix of a message about a deletion that was not
// requested in the fleet API.
func unrequestedPrefix(k RowFacts) string {
	if k.DeletionWanted {
		return ""
	}
	return "The Shoot was deleted directly in Gardener. "
}

// failureText returns Gardener's text about an operation that did not succeed.
func failureText(o *shoot.Observed) string {
	return cmp.Or(describeErrors(o), quotation(o.LastOperation.Description))
}

// describeErrors returns the last errors with their codes, which show who has to fix them.
func describeErrors(o *shoot.Observed) string {
	var out []string
	for _, e := range o.LastErrors {
		text := quotation(e.Description)
		if len(e.Codes) > 0 {
			text = strings.TrimSpace(text + " [" + quotation(strings.Join(e.Codes, ", ")) + "]")
		}
		if text != "" {
			out = append(out, text)
		}
	}
	return truncateText(strings.Join(out, "; "), maxErrors)
}

// describeConditions returns the names of conditions with their messages.
func describeConditions(list []shoot.Condition) string {
	var out []string
	for _, c := range list {
		text := quotation(c.Type)
		if said := quotation(cmp.Or(c.Message, c.Reason)); said != "" {
			text += " (" + strings.TrimSuffix(said, ".") + ")"
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ") + "."
}

// endWithQuotation ends a sentence, after a quotation if there is one.
func endWithQuotation(quote string) string {
	if quote == "" {
		return "."
	}
	return ": " + strings.TrimSuffix(quote, ".") + "."
}

// quotation returns a quoted text on one line and cut to maxQuote.
func quotation(text string) string {
	return truncateText(strings.Join(strings.Fields(text), " "), maxQuote)
}

func quoteText(text string) string { return strconv.Quote(quotation(text)) }

// sanitizeMessage returns a message in a form that the database accepts.
func sanitizeMessage(message string) string {
	return truncateText(strings.ReplaceAll(strings.ToValidUTF8(message, "?"), "\x00", ""), maxStatusMessage)
}

// truncateText cuts a text to limit bytes, and marks the cut.
func truncateText(text string, limit int) string {
	const dots = "…"
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-len(dots)], "") + dots
}
