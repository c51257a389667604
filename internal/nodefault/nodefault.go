// Package nodefault is the pipeline that takes sick nodes out of service, has
// them repaired, and gives them back: cordon, drain, reboot or replace, verify,
// uncordon.
//
// It is level-triggered. What is ours on a node stands on the node, written in
// the same request; why, how far and what was done stands in one NodeFault of
// the same name. Nothing else is remembered, so a controller that dies loses
// nothing and repeats nothing.
//
// This package has the words that its parts share, and nothing that acts.
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

// A Report is what a source says of one check on one node.
type Report struct {
	// Node is its name.
	Node string
	// Fault is what the source says. Its Since is when it was found.
	Fault v1alpha1.Fault
	// Healthy says that the fault is over. With an empty Entity it is over for
	// all entities of the check.
	Healthy bool
}

// KeyOf is source/check/entity: what tells the faults of a node apart.
func KeyOf(f v1alpha1.Fault) string { return f.Source + "/" + f.Check + "/" + f.Entity }

// CodeOf is the fault in a word: its codes, else its check.
func CodeOf(f v1alpha1.Fault) string {
	if len(f.ErrorCodes) > 0 {
		return strings.Join(f.ErrorCodes, ",")
	}
	return f.Check
}

// NewSession names what begins with a fault on a node at a time.
func NewSession(node types.UID, f v1alpha1.Fault, at time.Time) string {
	return digestOf(string(node), KeyOf(f), at.UTC().Format(time.RFC3339Nano))[:8]
}

// RecordID is the id of the change event of an action: the same whenever the
// same action of the same session is told again. The attempt, or whatever else
// tells two of a kind apart, is ordinal.
func RecordID(node types.UID, session, action, ordinal string) string {
	return digestOf(string(node), session, action, ordinal)[:32]
}

func digestOf(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		_, _ = fmt.Fprintf(h, "%d:%s", len(p), p) // a hash takes everything
	}
	return hex.EncodeToString(h.Sum(nil))
}

// How many records are kept: those that every sink has taken, and all.
const (
	keptRecords = 32
	maxRecords  = 64
)

// Tell adds a record to the history, with its number, unless one with its id is
// there. It drops old ones that were told, and, when there are far too many,
// old ones that were not, which are counted.
func Tell(st *v1alpha1.NodeFaultStatus, r v1alpha1.Record) {
	if Told(st, r.ID) {
		return
	}
	st.LastSequence++
	r.Sequence = st.LastSequence
	st.History = append(st.History, r)
	settled := Settled(st)
	for len(st.History) > keptRecords && st.History[0].Sequence <= settled {
		st.History = st.History[1:]
	}
	for len(st.History) > maxRecords {
		st.History = st.History[1:]
		st.Dropped++
	}
}

// Told says whether the history has a record with this id.
func Told(st *v1alpha1.NodeFaultStatus, id string) bool {
	for i := range st.History {
		if st.History[i].ID == id {
			return true
		}
	}
	return false
}

// Settled is the number up to which every sink has come: all, if there is none.
func Settled(st *v1alpha1.NodeFaultStatus) int64 {
	settled := st.LastSequence
	for _, d := range st.SinkDeliveries {
		settled = min(settled, d.ProcessedSequence)
	}
	return settled
}

// RecordOf begins the record of an action of a session: what is known of the
// fault that opened it.
func RecordOf(st *v1alpha1.NodeFaultStatus, source, action, ordinal string, at time.Time) v1alpha1.Record {
	r := v1alpha1.Record{
		ID: RecordID(st.NodeUID, st.Session, action, ordinal), Action: action, Source: source,
		At: metav1.NewMicroTime(at), Session: st.Session, Outcome: "succeeded",
	}
	if f := st.TriggeredBy; f != nil {
		r.Check, r.ErrorCodes, r.Agent, r.Fatal, r.Message = f.Check, f.ErrorCodes, f.Source, f.Fatal, Cut(f.Message, maxText)
	}
	return r
}

// maxText is how many bytes of free text a record has, as its schema says.
const maxText = 512

// Cut shortens a text to so many bytes, on the border of a letter.
func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len("…")], "") + "…"
}
