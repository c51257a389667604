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

// work is what an operation does to a cluster: what Gardener is at, and what it
// failed at.
func work(op *shoot.Operation) (doing, to string) {
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
		return "running an operation (" + quoted(op.Type) + ")", "complete an operation (" + quoted(op.Type) + ")"
	}
}

// atWork is what Gardener is at, and how far.
func atWork(op *shoot.Operation) string {
	doing, _ := work(op)
	return fmt.Sprintf("Gardener is %s (%d %%)%s", doing, op.Progress, ending(quotation(op.Description)))
}

func triesAgain(o *shoot.Observed) string {
	_, to := work(o.LastOperation)
	return fmt.Sprintf("Gardener failed to %s (%d %%) and retries%s", to, o.LastOperation.Progress, ending(why(o)))
}

func gaveUp(o *shoot.Observed) string {
	_, to := work(o.LastOperation)
	return fmt.Sprintf("Gardener failed to %s (%d %%) and stopped retrying%s", to, o.LastOperation.Progress, ending(why(o)))
}

// deletion is how far a deletion is, with the last error, if there is one.
func deletion(o *shoot.Observed) string {
	if o.LastOperation == nil || o.LastOperation.Type != operationDelete {
		return "Gardener has not started to delete the cluster yet."
	}
	text := atWork(o.LastOperation)
	if errs := errorsOf(o); errs != "" {
		text += " Last error" + ending(errs)
	}
	return text
}

// unasked is what comes before whatever is said of a deletion that was not
// asked for here.
func unasked(k Known) string {
	if k.DeletionWanted {
		return ""
	}
	return "The Shoot was deleted directly in Gardener. "
}

// why is what Gardener says of an operation that did not succeed.
func why(o *shoot.Observed) string {
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
	return clip(strings.Join(out, "; "), maxErrors)
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

// ending ends a sentence, with a quotation if there is one.
func ending(quote string) string {
	if quote == "" {
		return "."
	}
	return ": " + strings.TrimSuffix(quote, ".") + "."
}

// quotation is a text of others on one line and not too long.
func quotation(text string) string {
	return clip(strings.Join(strings.Fields(text), " "), maxQuote)
}

func quoted(text string) string { return strconv.Quote(quotation(text)) }

// storable is a message as the database takes it.
func storable(message string) string {
	return clip(strings.ReplaceAll(strings.ToValidUTF8(message, "?"), "\x00", ""), maxMessage)
}

// clip shortens a text to some bytes, and shows that it did.
func clip(text string, limit int) string {
	const dots = "…"
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-len(dots)], "") + dots
}
