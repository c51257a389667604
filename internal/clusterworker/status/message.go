package status

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

const (
	// maxMessage is how long a message can be. Gardener's errors quote what the
	// provider answered, which can be pages.
	maxMessage = 2000
	// maxQuote is how long one quotation can be, and maxErrors all errors
	// together, which leaves room for what is said around them.
	maxQuote  = 400
	maxErrors = 1200
)

// operationText is what an operation does to a cluster: what Gardener is at, and what it
// failed at.
func operationText(op *shoot.Operation) (doing, to string) {
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

// atWork is what Gardener is at, and how far.
func atWork(op *shoot.Operation) string {
	doing, _ := operationText(op)
	return fmt.Sprintf("Gardener is %s (%d %%)%s", doing, op.Progress, endSentence(quotation(op.Description)))
}

func triesAgain(o *shoot.Observed) string {
	_, to := operationText(o.LastOperation)
	return fmt.Sprintf("Gardener failed to %s (%d %%) and retries%s", to, o.LastOperation.Progress, endSentence(failureText(o)))
}

func gaveUp(o *shoot.Observed) string {
	_, to := operationText(o.LastOperation)
	return fmt.Sprintf("Gardener failed to %s (%d %%) and stopped retrying%s", to, o.LastOperation.Progress, endSentence(failureText(o)))
}

// deletionText is how far a deletion is, with the last error, if there is one.
func deletionText(o *shoot.Observed) string {
	if o.LastOperation == nil || o.LastOperation.Type != operationDelete {
		return "Gardener has not started to delete the cluster yet."
	}
	text := atWork(o.LastOperation)
	if errs := errorsOf(o); errs != "" {
		text += " Last error" + endSentence(errs)
	}
	return text
}

// unrequestedPrefix is what comes before whatever is said of a deletion that was not
// asked for here.
func unrequestedPrefix(k Known) string {
	if k.DeletionWanted {
		return ""
	}
	return "The Shoot was deleted directly in Gardener. "
}

// failureText is what Gardener says of an operation that did not succeed.
func failureText(o *shoot.Observed) string {
	return cmp.Or(errorsOf(o), quotation(o.LastOperation.Description))
}

// errorsOf are the last errors with their codes, which say whose they are.
func errorsOf(o *shoot.Observed) string {
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

// conditions are conditions by name, with what they say.
func conditions(list []shoot.Condition) string {
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

// endSentence ends a sentence, with a quotation if there is one.
func endSentence(quote string) string {
	if quote == "" {
		return "."
	}
	return ": " + strings.TrimSuffix(quote, ".") + "."
}

// quotation is a text of others on one line and not too long.
func quotation(text string) string {
	return truncateText(strings.Join(strings.Fields(text), " "), maxQuote)
}

func quoteText(text string) string { return strconv.Quote(quotation(text)) }

// sanitizeMessage is a message as the database takes it.
func sanitizeMessage(message string) string {
	return truncateText(strings.ReplaceAll(strings.ToValidUTF8(message, "?"), "\x00", ""), maxMessage)
}

// truncateText shortens a text to some bytes, and shows that it did.
func truncateText(text string, limit int) string {
	const dots = "…"
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-len(dots)], "") + dots
}
