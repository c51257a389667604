// Package audit records what happened to executions.
//
// The status of an execution is the outbox. Records derives the records from it, with the same
// numbers on every call, so a store can receive the same records any number of times. An Auditor
// writes them to a store: a PostgresStore. A failed write loses nothing: the records stay in the status and are
// written by the next attempt.
//
// A store keeps the records in one hash chain, see Event. Changing, removing or inserting a record
// breaks the chain, and verification detects it. Verification does not detect a chain that was
// rebuilt completely by the owner of the database. To detect that, note the end of the chain
// elsewhere from time to time and compare.
//
// Records contain no values of Secrets. Values that are known to be secret, or have a secret-like
// name, are omitted. If an execution acts on a Secret, all texts not written by people are omitted
// as well.
package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// Type is the kind of a record.
type Type string

// The types. Pruned comes from the store, not from an execution.
const (
	Requested         Type = "requested"
	PolicyDecided     Type = "policy_decided"
	Validated         Type = "validated"
	ApprovalRequested Type = "approval_requested"
	Approved          Type = "approved"
	Rejected          Type = "rejected"
	Started           Type = "started"
	AttemptFinished   Type = "attempt_finished"
	Result            Type = "result"
	RollbackAvailable Type = "rollback_available"
	Finalized         Type = "finalized"
	Failed            Type = "failed"
	Deleted           Type = "deleted"
	Pruned            Type = "pruned"
)

// ActorType is the kind of an actor.
type ActorType string

// The actor types.
const (
	User           ActorType = "user"
	ServiceAccount ActorType = "serviceaccount"
	Controller     ActorType = "controller"
	Database       ActorType = "database" // a database role
	Unknown        ActorType = "unknown"  // an authorized but unnamed user
)

// ControllerID is the name of the controller as an actor.
const ControllerID = "execution-controller"

// Outcomes of records, in addition to those of executions.
const (
	OutcomeAllowed = "Allowed"
	OutcomeDenied  = "Denied"
	OutcomePassed  = "Passed"
)

// Target is the object of an execution, as far as it was known.
type Target struct {
	APIVersion string `json:"target_api_version"`
	Kind       string `json:"target_kind"`
	Namespace  string `json:"target_namespace"`
	Name       string `json:"target_name"`
	UID        string `json:"target_uid"`
}

// A Record is one event in the life of an execution. The tags are the columns of the table.
type Record struct {
	ExecutionUID string          `json:"execution_uid"`
	Seq          int32           `json:"seq"` // number within the execution; see Records
	Time         time.Time       `json:"event_time"`
	Type         Type            `json:"type"`
	ActorType    ActorType       `json:"actor_type"`
	ActorID      string          `json:"actor_id"`
	Action       string          `json:"action"`
	Target       Target          `json:",embed"`
	Cluster      string          `json:"cluster"`
	Namespace    string          `json:"namespace"` // of the execution
	Name         string          `json:"name"`      // of the execution
	Outcome      string          `json:"outcome"`
	Reason       string          `json:"reason"`
	PolicyHash   string          `json:"policy_hash"`
	PlanHash     string          `json:"plan_hash"`
	Correlation  string          `json:"correlation_id"`
	Parent       string          `json:"parent"` // such as RemediationRequest/shop/cpu-high
	Payload      json.RawMessage `json:"payload"`
}

// An Event is a record with its position in the chain.
type Event struct {
	Record

	Position int64 // starts at 1, without gaps
	Recorded time.Time
	PrevHash []byte // hash of the previous event
	Hash     []byte // Digest at the time of recording
}

// encodingVersion is the first field of the encoding.
const encodingVersion = "fleetloop-audit-1"

// Digest returns the SHA-256 of the canonical encoding of an event. The encoding contains each
// field in the order of the table columns, preceded by its length. Times are microseconds since
// 1970, and the payload is as the database writes it.
func (e *Event) Digest() []byte {
	var b strings.Builder
	field := func(s string) {
		b.WriteString(strconv.Itoa(len(s)))
		b.WriteByte(':')
		b.WriteString(s)
		b.WriteByte(',')
	}
	number := func(n int64) { field(strconv.FormatInt(n, 10)) }
	field(encodingVersion)
	field(hex.EncodeToString(e.PrevHash))
	number(e.Position)
	number(e.Recorded.UnixMicro())
	field(e.ExecutionUID)
	number(int64(e.Seq))
	number(e.Time.UnixMicro())
	for _, s := range []string{
		string(e.Type), string(e.ActorType), e.ActorID, e.Action,
		e.Target.APIVersion, e.Target.Kind, e.Target.Namespace, e.Target.Name, e.Target.UID,
		e.Cluster, e.Namespace, e.Name,
		e.Outcome, e.Reason, e.PolicyHash, e.PlanHash, e.Correlation, e.Parent, string(e.Payload),
	} {
		field(s)
	}
	sum := sha256.Sum256([]byte(b.String()))
	return sum[:]
}
