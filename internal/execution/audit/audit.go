// Package audit says what happened to executions, for those who ask later.
//
// The status of an execution is the outbox: Records reads from it what there is
// to record, with the same numbers whenever it is asked, so that a store can be
// told of the same things any number of times. An Auditor brings them to the
// store. What fails is not lost: it stays in the status and is brought the next
// time.
//
// A store keeps records in one chain of hashes, see Event. Whoever changes,
// removes or inserts one breaks it, which verification shows. It does not show
// that somebody who owns the database has made the whole chain anew: note its
// end elsewhere from time to time and compare.
//
// No record has a value of a Secret. What is known to be one, or is called
// like one, is left out, and of an execution that acts on a Secret all texts
// that were not written by people are.
package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// Type is what happened.
type Type string

// The types. Pruned is of the store and not of an execution.
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

// ActorType is what an actor is.
type ActorType string

// The actor types.
const (
	User           ActorType = "user"
	ServiceAccount ActorType = "serviceaccount"
	Controller     ActorType = "controller"
	Database       ActorType = "database" // a login of the store
	Unknown        ActorType = "unknown"  // somebody who was allowed to, and gave no name
)

// ControllerID is how the controller is called as an actor.
const ControllerID = "execution-controller"

// Outcomes of records, beside those of executions.
const (
	OutcomeAllowed = "Allowed"
	OutcomeDenied  = "Denied"
	OutcomePassed  = "Passed"
)

// Target is the object that is acted on, as far as it was known.
type Target struct {
	APIVersion, Kind, Namespace, Name, UID string
}

// A Record is one thing that happened to an execution.
type Record struct {
	ExecutionUID string
	Seq          int32 // which thing it is, of this execution; see Records
	Time         time.Time
	Type         Type
	ActorType    ActorType
	ActorID      string
	Action       string
	Target       Target
	Cluster      string
	Namespace    string // of the execution
	Name         string // of the execution
	Outcome      string
	Reason       string
	PolicyHash   string
	PlanHash     string
	Correlation  string
	Parent       string // such as RemediationRequest/shop/cpu-high
	Payload      json.RawMessage
}

// An Event is a record in its place in the chain.
type Event struct {
	Record

	Position int64 // 1 is the first; there are no gaps
	Recorded time.Time
	PrevHash []byte // the hash of the event before it
	Hash     []byte // Digest, when it was recorded
}

// encodingVersion is the first field of the encoding.
const encodingVersion = "fleetloop-audit-1"

// Digest is the SHA-256 of an event in its canonical encoding: each field in the
// order of the table's columns with its length before it, times in microseconds
// since 1970, the payload as the database writes it.
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
