package provider

import (
	"context"
	"strings"
)

// What a person writes on a RebootNode or TerminateNode that waits for one.
const (
	// AnnotationDone says that it was done. Its value, who did it, is for people.
	AnnotationDone = "janitor.fleetloop.io/done"
	// AnnotationFailed says that it cannot be done, and its value why.
	AnnotationFailed = "janitor.fleetloop.io/failed"
)

// Manual is the provider that waits for a person.
type Manual struct{}

// Name is "manual".
func (Manual) Name() string { return string(KindManual) }

// Reboot waits until a person says that the machine was rebooted.
func (m Manual) Reboot(_ context.Context, r Request) (string, error) { return m.requestManual(r) }

// Terminate waits until a person says that the machine is gone.
func (m Manual) Terminate(_ context.Context, r Request) (string, error) { return m.requestManual(r) }

func (Manual) requestManual(r Request) (string, error) {
	if why, failed := r.By.Annotations[AnnotationFailed]; failed {
		return "", permanentf("marked as failed by a person: %s", why)
	}
	if by, done := r.By.Annotations[AnnotationDone]; done {
		return strings.TrimSpace("done " + by), nil
	}
	return "", waitingf("waiting for a person to %s the machine of node %q, and to confirm it: kubectl annotate %s %s %s=yes", r.Action, r.Node.Name, strings.ToLower(r.By.Kind), r.By.Name, AnnotationDone)
}

// Look says that it is done, since nothing was under way before it was.
func (Manual) Look(_ context.Context, r Request, reference string) (Progress, error) {
	if why, failed := r.By.Annotations[AnnotationFailed]; failed {
		return Progress{State: StateFailed, Message: "marked as failed by a person: " + why}, nil
	}
	return Progress{State: StateDone, Message: reference}, nil
}
