package janitor

import (
	"context"
	"strings"
)

// Annotations that a person sets on a RebootNode or TerminateNode with a manual provider.
const (
	// AnnotationDone confirms that the action was done. Its value, such as the name of
	// the person, is only informative.
	AnnotationDone = "janitor.fleetloop.io/done"
	// AnnotationFailed means that the action cannot be done. Its value is the reason.
	AnnotationFailed = "janitor.fleetloop.io/failed"
)

// ManualProvider is a provider that waits for a person.
type ManualProvider struct{}

// Name returns "manual".
func (ManualProvider) Name() string { return string(ProviderManual) }

// Start waits until a person confirms that the machine was rebooted or terminated.
func (ManualProvider) Start(_ context.Context, r Request) (reference string, err error) {
	if why, failed := r.By.Annotations[AnnotationFailed]; failed {
		return "", permanentf("marked as failed by a person: %s", why)
	}
	if by, done := r.By.Annotations[AnnotationDone]; done {
		return strings.TrimSpace("done " + by), nil
	}
	return "", waitingf("waiting for a person to %s the machine of node %q, and to confirm it: kubectl annotate %s %s %s=yes",
		r.Action, r.Node.Name, strings.ToLower(r.By.Kind), r.By.Name, AnnotationDone)
}

// CheckProgress returns StateDone, because a request is accepted only when it is done, unless a
// person has marked it as failed since.
func (ManualProvider) CheckProgress(_ context.Context, r Request, reference string) (Progress, error) {
	if why, failed := r.By.Annotations[AnnotationFailed]; failed {
		return Progress{State: StateFailed, Message: "marked as failed by a person: " + why}, nil
	}
	return Progress{State: StateDone, Message: reference}, nil
}
