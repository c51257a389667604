package timeline

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
	"github.com/fleetloop/fleetloop/internal/fleetapi/rest"
)

const (
	// maxEventID limits the length of the id of an event, in bytes.
	maxEventID = 1024
	// maxReason limits the length of a reason, in characters.
	maxReason = 1024
	// maxIdempotencyKey limits the length of an idempotency key, in bytes.
	maxIdempotencyKey = 255
)

// notRecorded says why an event has no deliveries.
const notRecorded = "only the deliveries of the cluster-worker's change events are recorded here; " +
	"the fleet API keeps its own events in the timeline and sends them nowhere, " +
	"and the node fault controller and the execution controller keep their deliveries in their host cluster"

// ErrNoDelivery means that no delivery of the event is recorded that could be repeated.
var ErrNoDelivery = errors.New("no delivery recorded")

// A Resend is a request to send an event again.
type Resend struct {
	EventID string
	// Sink limits the request to one sink. Empty means those that gave the event up.
	Sink   string
	Who    string
	Reason string
	// IdempotencyKey identifies the request of its author; "" means that the request is unique.
	IdempotencyKey string
}

// A DeliveryStore reads and repeats deliveries.
type DeliveryStore interface {
	// ListDeliveries returns the deliveries of an event by the names of the sinks.
	ListDeliveries(ctx context.Context, scope Scope, eventID string) ([]v1.ChangeDelivery, error)
	// ListUndelivered returns the deliveries that were given up since a time, and then those that fail, at
	// most as many of each.
	ListUndelivered(ctx context.Context, scope Scope, givenUpWithin time.Duration, limitOfEach int) ([]v1.UndeliveredChange, error)
	// RequeueEvent queues an event again and records that in the timeline, both or neither. It
	// returns the sinks for which it queued the event: none if its deliveries are pending, or if
	// the request is a repeated one. It returns ErrNoDelivery if no delivery matches.
	RequeueEvent(ctx context.Context, scope Scope, r Resend) (queuedSinks []string, err error)
}

// ServeDeliveries answers with the deliveries of an event.
func (t *Timeline) ServeDeliveries(w http.ResponseWriter, r *http.Request, principal auth.Principal) error {
	scope, err := authorizeRead(principal)
	if err != nil {
		return err
	}
	if err := rejectUnknownIfStrict(r.URL.Query()); err != nil {
		return err
	}
	id, err := parseEventIDFromPath(r)
	if err != nil {
		return err
	}
	items, err := t.store.ListDeliveries(r.Context(), scope, id)
	if err != nil {
		return toProblem(err)
	}
	answer := v1.ChangeDeliveries{ID: id, Recorded: len(items) > 0, Items: items}
	if !answer.Recorded {
		answer.Reason, answer.Items = notRecorded, []v1.ChangeDelivery{}
	}
	return rest.WriteJSONValue(w, http.StatusOK, answer)
}

const (
	// maxUndelivered limits a list of deliveries that fail.
	maxUndelivered = 100
	// GivenUpFor is how long a delivery that was given up is listed and counted.
	GivenUpFor = 24 * time.Hour
)

// ServeUndelivered answers with the deliveries that fail.
func (t *Timeline) ServeUndelivered(w http.ResponseWriter, r *http.Request, principal auth.Principal) error {
	scope, err := authorizeRead(principal)
	if err != nil {
		return err
	}
	if err := rejectUnknownIfStrict(r.URL.Query()); err != nil {
		return err
	}
	items, err := t.store.ListUndelivered(r.Context(), scope, GivenUpFor, maxUndelivered+1)
	if err != nil {
		return toProblem(err)
	}
	list := v1.UndeliveredChanges{Items: append([]v1.UndeliveredChange{}, items...)}
	if list.More = len(items) > maxUndelivered; list.More {
		list.Items = list.Items[:maxUndelivered]
	}
	return rest.WriteJSONValue(w, http.StatusOK, list)
}

// HandleResend sends an event again.
func (t *Timeline) HandleResend(w http.ResponseWriter, r *http.Request, principal auth.Principal) error {
	if !principal.CanChangeResources() {
		return rest.NewError(rest.CodeForbidden, "%q has a role that cannot send change events again; ask an operator", principal.Subject)
	}
	scope, err := authorizeRead(principal)
	if err != nil {
		return err
	}
	resend, err := t.decodeResendRequest(w, r, principal)
	if err != nil {
		return err
	}
	queued, err := t.store.RequeueEvent(r.Context(), scope, resend)
	switch {
	case errors.Is(err, ErrNoDelivery):
		return rest.NewError(rest.CodeNotFound, "change event %q has no delivery here that can be repeated%s; GET %s lists its deliveries",
			resend.EventID, formatSinkSuffix(resend.Sink), r.URL.EscapedPath()[:strings.LastIndexByte(r.URL.EscapedPath(), '/')]+"/deliveries")
	case err != nil:
		return toProblem(err)
	}
	status := http.StatusOK
	if len(queued) > 0 {
		status = http.StatusAccepted
		t.hub.TriggerRead()
		t.log.InfoContext(r.Context(), "change event queued again by request", "event_id", resend.EventID, "sinks", queued, "subject", principal.Actor())
	}
	items, err := t.store.ListDeliveries(r.Context(), scope, resend.EventID)
	if err != nil {
		return toProblem(err)
	}
	return rest.WriteJSONValue(w, status, v1.ChangeResent{Queued: queued, Items: items})
}

func formatSinkSuffix(name string) string {
	if name == "" {
		return ""
	}
	return " to sink " + strconv.Quote(name)
}

func (t *Timeline) decodeResendRequest(w http.ResponseWriter, r *http.Request, principal auth.Principal) (Resend, error) {
	id, err := parseEventIDFromPath(r)
	if err != nil {
		return Resend{}, err
	}
	var req v1.ChangeResend
	if r.ContentLength != 0 { // the body may be left out
		if e := rest.DecodeJSONBody(w, r, t.maxBody, &req); e != nil {
			return Resend{}, e
		}
	}
	resend := Resend{
		EventID:        id,
		Sink:           req.Sink,
		Who:            principal.Actor(),
		Reason:         strings.TrimSpace(req.Reason),
		IdempotencyKey: r.Header.Get(v1.IdempotencyKeyHeader),
	}
	var errs []v1.FieldError
	if utf8.RuneCountInString(resend.Reason) > maxReason || strings.ContainsRune(resend.Reason, 0) {
		errs = append(errs, v1.FieldError{Field: "reason", Constraint: "max_length", Message: "must be at most 1024 characters without NUL"})
	}
	if len(resend.Sink) > maxName || strings.ContainsRune(resend.Sink, 0) {
		errs = append(errs, v1.FieldError{Field: "sink", Constraint: "max_length", Message: "must be the name of a sink"})
	}
	if len(resend.IdempotencyKey) > maxIdempotencyKey {
		errs = append(errs, v1.FieldError{Field: v1.IdempotencyKeyHeader, Constraint: "max_length", Message: "must be at most 255 bytes"})
	}
	if len(errs) > 0 {
		return Resend{}, rest.NewFieldsError(errs)
	}
	return resend, nil
}

func parseEventIDFromPath(r *http.Request) (eventID string, err error) {
	id := r.PathValue("id")
	if len(id) > maxEventID || !utf8.ValidString(id) || strings.ContainsRune(id, 0) {
		return "", rest.NewError(rest.CodeNotFound, "this is not the id of a change event; 'id' of GET %s is one", v1.ChangesPath)
	}
	return id, nil
}

// ActionChangeResent is the action of sending a change event again.
const ActionChangeResent = "change-resent"

// A ResentChange is a change event that was queued again.
type ResentChange struct {
	Resend

	// Action, Cluster and Tenant are those of the event.
	Action, Cluster, Tenant string
	// Sinks are those for which it was queued.
	Sinks []string
	At    time.Time
}

// BuildEvent returns the change event of the request. A repeated request has the same key.
func (c *ResentChange) BuildEvent() (Event, error) {
	request := strconv.FormatInt(c.At.UnixMicro(), 10)
	if c.IdempotencyKey != "" {
		request = hashTexts(c.Who, c.Sink, c.IdempotencyKey).String()
	}
	sinks := strings.Join(c.Sinks, ", ")
	details := map[string]string{"event_id": c.EventID, "event_action": c.Action, "sinks": sinks}
	setActorDetails(details, c.Who)
	summary := cmp.Or(c.Who, changeevent.ProductFleetloop) + " sent change event " + c.Action + " of cluster " + c.Cluster + " again to " + sinks
	if c.Reason != "" {
		summary += " - " + c.Reason
	}
	return newOwnEvent(changeevent.ChangeEvent{
		ID:     "change/" + c.EventID + "/" + ActionChangeResent + "/" + request,
		Action: ActionChangeResent, Subject: v1.CollectionClusters + "/" + c.Cluster, Reason: c.Reason, Summary: summary,
		Cluster: c.Cluster, Details: details,
	}, c.Tenant, c.At)
}
