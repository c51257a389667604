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
)

// newEvent is the event that a payload tells, which changeevent has made or
// checked. Trusted says that who tells it serves all tenants: a tenant who foresees
// an id cannot take the place of what a component tells of it.
func newEvent(p changeevent.Payload, tenant, recordedBy string, trusted bool) (Event, error) {
	at, err := changeevent.ParseTime(p.Timestamp)
	if err != nil {
		return Event{}, fmt.Errorf("read a change event: %w", err)
	}
	text, err := json.Marshal(p)
	if err != nil {
		return Event{}, fmt.Errorf("write a change event: %w", err)
	}
	return Event{
		Key: hashTexts(tenant, p.Cluster, p.Source, p.ID, strconv.FormatBool(trusted)), Digest: hashTexts(string(text)),
		At: at, Tenant: tenant, RecordedBy: recordedBy, Payload: text,
		Facts: Facts{
			Cluster: p.Cluster, Node: p.Node, Source: p.Source, Actor: cmp.Or(strings.TrimSpace(p.Details[DetailActor]), p.Source),
			Action: p.Action, Subject: p.Subject, Session: p.Session, Fields: fieldKeys(p.Changes),
		},
	}, nil
}

// hashTexts is a hash of some texts.
func hashTexts(parts ...string) uuid.UUID {
	h := sha256.New()
	var length [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(length[:], uint64(len(p)))
		h.Write(length[:])
		h.Write([]byte(p))
	}
	return uuid.UUID(h.Sum(nil)[:16])
}

// A ResourceChange is a change that the fleet API itself has made to a resource.
type ResourceChange struct {
	Kind string // Cluster, NodePool
	ID   string
	Name string
	// Cluster is the name of the cluster that it is, or that it belongs to.
	Cluster string
	Tenant  string

	Action string
	Reason string
	// Who is the identity that the request was authenticated as.
	Who string
	// Changes are the fields that were changed or, of a resource that was created
	// or deleted, all that it had.
	Changes []changeevent.FieldChange
	// DeletionRequested says that the change was the request to delete it.
	DeletionRequested bool
	At                time.Time
	Generation        int64
	// Revision is another one after every change.
	Revision int64
}

// The actions on node pools. Those on clusters are of changeevent.
const (
	ActionNodePoolCreated = "nodepool-created"
	ActionNodePoolChanged = "nodepool-changed"
	ActionNodePoolDeleted = "nodepool-deleted"
)

// Event is the event that tells of the change.
func (c *ResourceChange) Event() (Event, error) {
	subject := v1.CollectionClusters + "/" + c.Name
	if c.Kind == v1.KindNodePool { // which may have the name of its cluster
		subject = v1.CollectionNodePools + "/" + c.Name
	}
	details := map[string]string{"id": c.ID, "generation": strconv.FormatInt(c.Generation, 10)}
	if c.Who != "" {
		details[DetailActor] = c.Who
	}
	e := changeevent.ChangeEvent{
		ID:     strings.ToLower(c.Kind) + "/" + c.ID + "/" + c.Action + "/" + strconv.FormatInt(c.Revision, 10),
		Action: c.Action, Subject: subject, Reason: c.Reason, Timestamp: c.At,
		Source: changeevent.SourceFleetAPI, Cluster: c.Cluster, Details: details, Changes: c.Changes,
	}
	if c.DeletionRequested {
		e.Summary = cmp.Or(c.Who, changeevent.ProductFleetloop) + " requested the deletion of " + strings.ToLower(c.Kind) + " " + c.Name
	}
	made, err := newEvent(changeevent.NewPayload(e), c.Tenant, "", true)
	if !strings.HasSuffix(c.Action, "-changed") {
		made.Fields = nil // it has, or had, these fields, and nobody changed them
	}
	made.At = c.At // to the microsecond, so that changes in a row stay in a row
	return made, err
}
