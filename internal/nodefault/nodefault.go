// Package nodefault is the pipeline that takes faulty nodes out of service, repairs them
// and returns them: cordon, drain, reboot or replace, verify, uncordon.
//
// It is level-triggered. The marks of the pipeline on a node are stored on the node, in
// the same request as the cordon. The reason, the progress and the history are stored in
// one NodeFault with the name of the node. No other state is kept, so a controller that
// crashes loses nothing and repeats nothing.
//
// This package holds the types and functions that its subpackages share, and the permissions of
// the controller in a cluster, which the manifests, the chart and the tests use. It performs no
// actions.
package nodefault

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
)

// A Report is the result of one check of one source on one node.
type Report struct {
	// Node is the name of the node.
	Node string
	// Fault is the reported fault. Its DetectedAt is the time of detection, and its
	// GeneratedAt that of the report.
	Fault v1alpha1.Fault
	// Healthy means that the fault is over. With an empty Entity, it is over for all
	// entities of the check.
	Healthy bool
}

// A Verdict is the decision of the rules about a node.
type Verdict struct {
	// DesiredActions is empty if no rule requires an action.
	DesiredActions v1alpha1.DesiredActions

	// Opened is the most severe fault that requires an action. Records of the actions
	// refer to it. It is nil if no action is required.
	Opened *v1alpha1.Fault

	// Matched lists the faults that require an action, as their sources reported them.
	Matched []v1alpha1.Fault

	// After is the delay until a rule with a minimum age may match without a change. Zero
	// means none.
	After time.Duration

	// Unsure means that a rule failed, so that more actions may be required.
	Unsure bool
}

// RequiresAction reports whether any action is desired.
func RequiresAction(desired v1alpha1.DesiredActions) bool {
	return desired.Cordon || desired.Drain || len(desired.Taints) > 0 || len(desired.Remedies) > 0
}

// KeyOf returns source/check/entity, which identifies a fault of a node.
func KeyOf(f v1alpha1.Fault) string { return f.Source + "/" + f.Check + "/" + f.Entity }

// JoinedErrorCodesOrCheck returns the error codes of a fault, or its check if it has none.
func JoinedErrorCodesOrCheck(f v1alpha1.Fault) string {
	if len(f.ErrorCodes) > 0 {
		return strings.Join(f.ErrorCodes, ",")
	}
	return f.Check
}

// NewSessionID returns the id of a session that begins with a fault on a node at a time.
func NewSessionID(node types.UID, f v1alpha1.Fault, at time.Time) string {
	return sha256Hex(string(node), KeyOf(f), at.UTC().Format(time.RFC3339Nano))[:8]
}

// RecordID returns the id of the change event of an action. It is the same each time the
// same action of a session is recorded. The ordinal, such as the attempt, distinguishes
// repeated actions.
func RecordID(node types.UID, session, action, ordinal string) string {
	return sha256Hex(string(node), session, action, ordinal)[:32]
}

func sha256Hex(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		_, _ = fmt.Fprintf(h, "%d:%s", len(p), p) // a hash accepts any input
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Limits of the history: of records that every sink has processed, and of all records.
const (
	keptRecords = 32
	maxRecords  = 64
)

// AppendRecordOnceAndTrim adds a numbered record to the history, unless a record with its id exists. It
// drops old processed records, and if there are too many, old unprocessed ones, which it
// counts.
func AppendRecordOnceAndTrim(status *v1alpha1.NodeFaultStatus, r v1alpha1.Record) {
	if HasRecord(status, r.ID) {
		return
	}
	status.LastSequence++
	r.Sequence = status.LastSequence
	status.History = append(status.History, r)
	processed := ProcessedByAllSinks(status)
	for len(status.History) > keptRecords && status.History[0].Sequence <= processed {
		status.History = status.History[1:]
	}
	for len(status.History) > maxRecords {
		status.History = status.History[1:]
		status.Dropped++
	}
}

// HasRecord reports whether the history has a record with this id.
func HasRecord(status *v1alpha1.NodeFaultStatus, id string) bool {
	for i := range status.History {
		if status.History[i].ID == id {
			return true
		}
	}
	return false
}

// ProcessedByAllSinks returns the sequence number that every sink has processed. Without sinks it is
// the last number.
func ProcessedByAllSinks(status *v1alpha1.NodeFaultStatus) (sequence int64) {
	sequence = status.LastSequence
	for _, delivery := range status.SinkDeliveries {
		sequence = min(sequence, delivery.ProcessedSequence)
	}
	return sequence
}

// NewRecord returns a new record of an action of a session, with the data of the fault
// that opened the session.
func NewRecord(
	status *v1alpha1.NodeFaultStatus, source, action, ordinal string, at time.Time,
) v1alpha1.Record {
	record := v1alpha1.Record{
		ID:      RecordID(status.NodeUID, status.Session, action, ordinal),
		Action:  action,
		Source:  source,
		At:      metav1.NewMicroTime(at),
		Session: status.Session,
		Outcome: "succeeded",
	}
	if opened := status.TriggeredBy; opened != nil {
		record.Check = opened.Check
		record.ErrorCodes = opened.ErrorCodes
		record.Agent = opened.Source
		record.Fatal = opened.Fatal
		record.Message = TruncateText(opened.Message, maxText)
	}
	return record
}

// maxText is the maximum length of free text in a record in bytes, as in its schema.
const maxText = 512

// TruncateText truncates a text to at most maxBytes bytes without splitting a character.
func TruncateText(text string, maxBytes int) string {
	if len(text) <= maxBytes {
		return text
	}
	return strings.ToValidUTF8(text[:maxBytes-len("…")], "") + "…"
}
