package timeline

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
	"github.com/fleetloop/fleetloop/internal/fleetapi/rest"
)

// ahead is how far a sender's clock may be ahead of the server's.
const ahead = time.Hour

// maxName is the maximum length of the name of a cluster or a tenant.
const maxName = 253

// HandlePostEvents accepts change events: a payload or an array of them, or CloudEvents. It stores all events
// of a request or none.
func (t *Timeline) HandlePostEvents(w http.ResponseWriter, r *http.Request, principal auth.Principal) error {
	if !principal.CanControlSync() {
		return rest.NewError(rest.CodeForbidden, "%q has the role %s, which cannot send change events", principal.Subject, auth.Viewer)
	}
	scope, err := authorizeRead(principal)
	if err != nil {
		return err
	}
	cluster, err := parseClusterNameFromPath(r)
	if err != nil {
		return err
	}
	payloads, err := t.decodePayloads(w, r)
	if err != nil {
		return err
	}
	events, err := t.newEventsFromPayloads(payloads, cluster, principal)
	if err != nil {
		return err
	}
	if err := t.requireKnownClustersIfConfigured(r, scope, events); err != nil {
		return err
	}
	outcomes, err := t.intake.appendInSharedTx(r.Context(), scope, events)
	if err != nil {
		return toProblem(err)
	}
	t.metrics.countOutcomes(outcomes)
	summary := summarizeOutcomes(payloads, outcomes)
	if summary.Stored > 0 {
		t.hub.TriggerRead()
	}
	return rest.WriteJSONValue(w, http.StatusAccepted, summary)
}

func parseClusterNameFromPath(r *http.Request) (clusterName string, err error) {
	name := r.PathValue("cluster")
	if !isValidName(name) {
		return "", rest.NewError(rest.CodeNotFound, "%q is not a cluster name; use 1 to %d printable characters", name, maxName)
	}
	return name, nil
}

func isValidName(name string) bool {
	if name == "" || !utf8.ValidString(name) || utf8.RuneCountInString(name) > maxName {
		return false
	}
	return strings.TrimSpace(name) == name && !strings.ContainsFunc(name, isControlOrLineSeparator)
}

func isControlOrLineSeparator(c rune) bool {
	return unicode.IsControl(c) || c == '\u2028' || c == '\u2029'
}

// newEventsFromPayloads returns the events of payloads. Those without a cluster get the given one.
func (t *Timeline) newEventsFromPayloads(payloads []changeevent.Payload, cluster string, sender auth.Principal) ([]Event, error) {
	events := make([]Event, len(payloads))
	now := time.Now()
	for i := range payloads {
		payload := &payloads[i]
		payload.Cluster = cmp.Or(payload.Cluster, cluster)
		if err := t.checkSourceAndTimestamp(payload, now); err != nil {
			return nil, addElementIndex(i, len(payloads), err)
		}
		var err error
		events[i], err = newEvent(*payload, chooseEventTenant(payload, sender), sender.Actor(), sender.CanSendForAllTenants())
		if err != nil {
			return nil, err
		}
	}
	return events, nil
}

// chooseEventTenant returns the tenant of an event: the tenant of its sender. A component that serves all
// tenants names the tenant of the cluster.
func chooseEventTenant(payload *changeevent.Payload, sender auth.Principal) string {
	if !sender.CanSendForAllTenants() {
		return sender.Tenant
	}
	if named := payload.Details[DetailTenant]; isValidName(named) {
		return named
	}
	return sender.Tenant
}

func (t *Timeline) decodePayloads(w http.ResponseWriter, r *http.Request) ([]changeevent.Payload, error) {
	if e := r.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return nil, rest.NewError(rest.CodeUnsupportedMediaType, "content encoding %q is not supported; send the body without encoding", e)
	}
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	isJSON := err == nil && media == "application/json"
	isCloudEvent := changeevent.IsCloudEvent(r.Header)
	if !isCloudEvent && !isJSON {
		// A request without a type is refused, because a foreign web page can make a browser send one.
		return nil, rest.NewError(
			rest.CodeUnsupportedMediaType,
			"content type %q is not supported; send application/json, or CloudEvents as application/cloudevents+json or application/cloudevents-batch+json",
			r.Header.Get("Content-Type"),
		)
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, t.maxBody))
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, rest.NewError(rest.CodeBodyTooLarge, "the body is larger than %d bytes; send fewer events at once", tooLarge.Limit)
	}
	if err != nil {
		return nil, rest.NewError(rest.CodeInvalidBody, "the fleet API could not read the whole body; send the request again")
	}
	var list []changeevent.Payload
	if isCloudEvent {
		list, err = changeevent.DecodeCloudEvent(r.Header, data)
	} else {
		list, err = changeevent.DecodeAll(data)
	}
	switch {
	case errors.Is(err, changeevent.ErrMediaType):
		return nil, rest.NewError(rest.CodeUnsupportedMediaType, "%s", err)
	case errors.Is(err, changeevent.ErrTooLarge):
		return nil, rest.NewError(rest.CodeBodyTooLarge, "%s", err)
	case err != nil:
		return nil, rest.NewError(rest.CodeInvalidBody, "the body is not a change event: %s", err)
	}
	return list, nil
}

// checkSourceAndTimestamp checks the rules that apply in this API and not to payloads in general.
func (t *Timeline) checkSourceAndTimestamp(payload *changeevent.Payload, now time.Time) error {
	if payload.Source == changeevent.SourceFleetAPI {
		return rest.NewError(rest.CodeInvalidBody, "source %q is reserved: the fleet API records its own changes", payload.Source)
	}
	done, err := changeevent.ParseTime(payload.Timestamp)
	if err != nil {
		return rest.NewError(rest.CodeInvalidBody, "%s", err)
	}
	switch {
	case done.Before(now.Add(-t.retention)):
		return rest.NewError(
			rest.CodeTimestampOutOfRange,
			"timestamp %s is older than the retention of change events, %s; drop the event",
			payload.Timestamp,
			t.retention,
		)
	case done.After(now.Add(ahead)):
		return rest.NewError(
			rest.CodeTimestampOutOfRange,
			"timestamp %s is more than %s ahead of this server's clock, %s; synchronise the clocks",
			payload.Timestamp,
			ahead,
			changeevent.CanonicalTime(now),
		)
	}
	return nil
}

func addElementIndex(index, count int, err error) error {
	p, ok := errors.AsType[*rest.Error](err)
	if !ok || count == 1 {
		return err
	}
	placed := *p
	placed.Detail = fmt.Sprintf("element %d: %s", index, p.Detail)
	return &placed
}

// requireKnownClustersIfConfigured requires that the clusters of events exist, if so configured.
func (t *Timeline) requireKnownClustersIfConfigured(r *http.Request, scope Scope, events []Event) error {
	if !t.knownOnly {
		return nil
	}
	var names []string
	for i := range events {
		names = append(names, events[i].Cluster)
	}
	slices.Sort(names)
	unknown, err := t.store.FindUnknownClusters(r.Context(), scope, slices.Compact(names))
	if err != nil {
		return toProblem(err)
	}
	if len(unknown) > 0 {
		return rest.NewError(rest.CodeNotFound, "there is no cluster %q; create it, or set timeline.known_clusters_only to false", unknown[0])
	}
	return nil
}

func summarizeOutcomes(payloads []changeevent.Payload, outcomes []Outcome) v1.ChangesAccepted {
	summary := v1.ChangesAccepted{Conflicts: []string{}}
	for i, o := range outcomes {
		switch o {
		case Stored:
			summary.Stored++
		case Known:
			summary.Duplicates++
		case Different:
			summary.Duplicates++
			summary.Conflicts = append(summary.Conflicts, payloads[i].ID)
		}
	}
	return summary
}
