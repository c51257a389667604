package timeline

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
)

// newEvent returns the event of a payload that changeevent has created or validated. senderServesAll means
// that the sender serves all tenants. The key depends on it, so that a tenant who guesses an id
// cannot preempt the event of a component.
func newEvent(payload changeevent.Payload, tenant, recordedBy string, senderServesAll bool) (Event, error) {
	at, err := changeevent.ParseTime(payload.Timestamp)
	if err != nil {
		return Event{}, fmt.Errorf("read a change event: %w", err)
	}
	text, err := json.Marshal(payload)
	if err != nil {
		return Event{}, fmt.Errorf("write a change event: %w", err)
	}
	return Event{
		Key:        hashTexts(tenant, payload.Cluster, payload.Source, payload.ID, strconv.FormatBool(senderServesAll)),
		Digest:     hashTexts(string(text)),
		At:         at,
		Tenant:     tenant,
		RecordedBy: recordedBy,
		Payload:    text,
		Facts: Facts{
			Cluster: payload.Cluster,
			Node:    payload.Node,
			Source:  payload.Source,
			Actor:   cmp.Or(strings.TrimSpace(payload.Details[DetailActor]), payload.Source),
			Action:  payload.Action,
			Subject: payload.Subject,
			Session: payload.Session,
			Failed:  payload.Outcome == changeevent.OutcomeFailed,
			DryRun:  payload.DryRun,
			Message: joinSummaryAndReason(payload.Summary, payload.Reason),
			Fields:  fieldPathsWithParents(payload.Changes),
		},
	}, nil
}

// joinSummaryAndReason returns the text of an event in which a filter searches.
func joinSummaryAndReason(summary, reason string) string { return summary + "\n" + reason }

// decodeMessage returns the text of a stored event in which a filter searches.
func decodeMessage(payload json.RawMessage) (message string, err error) {
	var p struct{ Summary, Reason string }
	if err := json.Unmarshal(payload, &p); err != nil {
		return "", fmt.Errorf("read the message of a change event: %w", err)
	}
	return joinSummaryAndReason(p.Summary, p.Reason), nil
}

func hashTexts(texts ...string) uuid.UUID {
	h := sha256.New()
	var length [8]byte
	for _, p := range texts {
		binary.BigEndian.PutUint64(length[:], uint64(len(p)))
		h.Write(length[:])
		h.Write([]byte(p))
	}
	return uuid.UUID(h.Sum(nil)[:16])
}

// A ResourceChange is a change of a resource by the fleet API itself.
type ResourceChange struct {
	Kind string // Cluster or NodePool
	ID   string
	Name string
	// Cluster is the name of the cluster, or of the cluster that the resource belongs to.
	Cluster string
	Tenant  string

	Action string
	Reason string
	// Who is the actor of the request, as auth.Principal.Actor returns it.
	Who string
	// Changes lists the changed fields or, for a created or deleted resource, all its fields.
	Changes []changeevent.FieldChange
	// DeletionRequested reports whether the change was the deletion request.
	DeletionRequested bool
	At                time.Time
	Generation        int64
	// Revision is that of the created or deleted resource.
	Revision int64
	// ReplacedRevision is that of a changed resource before the change, and zero for another action.
	ReplacedRevision int64
}

// setActorDetails names the actor of a request, and who impersonated it.
func setActorDetails(details map[string]string, who string) {
	if who == "" {
		return
	}
	subject, impersonatedBy := auth.SplitActor(who)
	details[DetailActor] = subject
	if impersonatedBy != "" {
		details[changeevent.DetailImpersonatedBy] = impersonatedBy
	}
}

// The actions on node pools. Package changeevent defines those on clusters.
const (
	ActionNodePoolCreated = "nodepool-created"
	ActionNodePoolChanged = "nodepool-changed"
	ActionNodePoolDeleted = "nodepool-deleted"
)

// BuildEvent returns the change event of the change.
func (c *ResourceChange) BuildEvent() (Event, error) {
	subject := v1.CollectionClusters + "/" + c.Name
	if c.Kind == v1.KindNodePool { // it may have the name of its cluster
		subject = v1.CollectionNodePools + "/" + c.Name
	}
	details := map[string]string{"id": c.ID, "generation": strconv.FormatInt(c.Generation, 10)}
	setActorDetails(details, c.Who)
	// A revision is created, replaced and deleted at most once.
	revision := strconv.FormatInt(c.Revision, 10)
	if c.ReplacedRevision != 0 {
		revision = "after-" + strconv.FormatInt(c.ReplacedRevision, 10)
	}
	event := changeevent.ChangeEvent{
		ID:     strings.ToLower(c.Kind) + "/" + c.ID + "/" + c.Action + "/" + revision,
		Action: c.Action, Subject: subject, Reason: c.Reason,
		Cluster: c.Cluster, Details: details, Changes: c.Changes,
	}
	if c.DeletionRequested {
		event.Summary = cmp.Or(c.Who, changeevent.ProductFleetloop) + " requested the deletion of " + strings.ToLower(c.Kind) + " " + c.Name
	}
	built, err := newOwnEvent(event, c.Tenant, c.At)
	if !strings.HasSuffix(c.Action, "-changed") {
		built.Fields = nil // no field was changed: all of them are, or were, present
	}
	return built, err
}

// newOwnEvent returns an event that the fleet API itself records.
func newOwnEvent(event changeevent.ChangeEvent, tenant string, at time.Time) (Event, error) {
	event.Source, event.Timestamp = changeevent.SourceFleetAPI, at
	built, err := newEvent(changeevent.NewPayload(event), tenant, "", true)
	built.At = at // in microseconds, so that consecutive changes stay in order
	return built, err
}

// The actions on the sync of a cluster to Gardener.
const (
	ActionSyncPaused  = "sync-paused"
	ActionSyncResumed = "sync-resumed"
)

// A SyncPauseChange is a pause of the sync of a cluster, or its end, as requested of the fleet API.
type SyncPauseChange struct {
	// ID and Cluster are the id and the name of the cluster.
	ID      string
	Cluster string
	Tenant  string

	Action string
	Who    string
	Reason string
	// Until is the time at which a pause ends automatically; zero means never.
	Until time.Time
	At    time.Time
}

// BuildEvent returns the change event of the change.
func (c *SyncPauseChange) BuildEvent() (Event, error) {
	details := map[string]string{"id": c.ID}
	setActorDetails(details, c.Who)
	done, until := "resumed", ""
	if c.Action == ActionSyncPaused {
		done = "paused"
	}
	if !c.Until.IsZero() {
		details["until"] = c.Until.UTC().Format(time.RFC3339)
		until = " until " + details["until"]
	}
	summary := cmp.Or(c.Who, changeevent.ProductFleetloop) + " " + done + " the sync of cluster " + c.Cluster + until
	if c.Reason != "" {
		summary += " - " + c.Reason
	}
	return newOwnEvent(changeevent.ChangeEvent{
		ID:     "cluster/" + c.ID + "/" + c.Action + "/" + strconv.FormatInt(c.At.UnixMicro(), 10),
		Action: c.Action, Subject: v1.CollectionClusters + "/" + c.Cluster, Reason: c.Reason, Summary: summary,
		Cluster: c.Cluster, Details: details,
	}, c.Tenant, c.At)
}
