package quarantine

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault"
)

// A mark is the annotation that says what of a node is ours.
type mark struct {
	// UID is the node's own: an annotation that was copied from another node
	// says nothing.
	UID types.UID `json:"uid"`
	v1alpha1.Owned
	// Foreign is that the node is cordoned, and not by us.
	Foreign bool `json:"foreign,omitempty"`
	// Undone are taints that a person has taken off, as key:effect. They are not
	// put back.
	Undone []string `json:"undone,omitempty"`
	// Tracked is that the managed fields were empty, and that we have had the API
	// server keep them again, which is tried once.
	Tracked bool `json:"tracked,omitempty"`
	// Fault is what opened the session.
	Fault opener `json:"fault"`
}

// An opener is a fault with which a session was opened, as far as is needed to
// tell of it if the status is lost.
type opener struct {
	Source  string                     `json:"source"`
	Check   string                     `json:"check"`
	Entity  string                     `json:"entity,omitempty"`
	Codes   []string                   `json:"codes,omitempty"`
	Fatal   bool                       `json:"fatal,omitempty"`
	Message string                     `json:"message,omitempty"`
	Action  v1alpha1.RecommendedAction `json:"action,omitempty"`
	Since   metav1.MicroTime           `json:"since"`
}

// A tombstone is the annotation that says how a session ended, by us.
type tombstone struct {
	UID     types.UID        `json:"uid"`
	Session string           `json:"session"`
	At      metav1.MicroTime `json:"at"`
	// Since is when it began, and Cordon that the node was uncordoned now.
	Since  metav1.MicroTime `json:"since"`
	Cordon bool             `json:"cordon,omitempty"`
	Reason string           `json:"reason,omitempty"`
	// Orphan is that the node did not say any more which session that was.
	Orphan bool `json:"orphan,omitempty"`
}

// An override is the annotation that remembers what a person has undone.
type override struct {
	UID     types.UID        `json:"uid"`
	Session string           `json:"session"`
	At      metav1.MicroTime `json:"at"`
	// Since is when we had taken the node.
	Since metav1.MicroTime `json:"since,omitzero"`
	// Faults are those that were there, as source/check/entity.
	Faults []string `json:"faults,omitempty"`
	// All is that those were all that had begun by then.
	All bool `json:"all,omitempty"`
}

// maxAnnotation is longer than any annotation of ours.
const maxAnnotation = 64 << 10

// The fault of a session of which nobody knows with which it was opened.
const unknownSource, unknownCheck = "fleetloop", "unknown"

// maxSession is longer than any session of ours.
const maxSession = 64

var (
	errOtherNode = errors.New("UID of another node")
	errTooLong   = errors.New("value too long")
)

// readMark reads what is ours on a node; nil is nothing. An annotation that
// cannot be ours is an error, and nothing is ours by it.
func readMark(node *corev1.Node) (*mark, error) {
	var m mark
	found, err := readAnnotation(node, v1alpha1.AnnotationOwned, &m)
	if err != nil || !found {
		return nil, err
	}
	if err := isValidMark(node, m.UID, m.Session, m.AppliedAt); err != nil {
		return nil, err
	}
	for _, t := range m.Taints {
		if t.Key == "" || t.Effect == "" {
			return nil, fmt.Errorf("taint %q has no key or effect", t.ToString())
		}
	}
	m.Fault = m.Fault.truncated(m.AppliedAt)
	return &m, nil
}

func readTombstone(node *corev1.Node) (*tombstone, error) {
	var t tombstone
	found, err := readAnnotation(node, v1alpha1.AnnotationReleased, &t)
	if err != nil || !found {
		return nil, err
	}
	if err := isValidMark(node, t.UID, t.Session, t.At); err != nil {
		return nil, err
	}
	return &t, nil
}

func readOverride(node *corev1.Node) (*override, error) {
	var o override
	found, err := readAnnotation(node, v1alpha1.AnnotationOverridden, &o)
	if err != nil || !found {
		return nil, err
	}
	if err := isValidMark(node, o.UID, o.Session, o.At); err != nil {
		return nil, err
	}
	return &o, nil
}

func readAnnotation(node *corev1.Node, key string, into any) (bool, error) {
	text, there := node.Annotations[key]
	switch {
	case !there:
		return false, nil
	case len(text) > maxAnnotation:
		return false, errTooLong
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		return false, err
	}
	return true, nil
}

func isValidMark(node *corev1.Node, uid types.UID, session string, at metav1.MicroTime) error {
	switch {
	case uid != node.UID:
		return errOtherNode
	case session == "" || len(session) > maxSession:
		return fmt.Errorf("invalid session %q", session)
	case at.IsZero():
		return errors.New("time missing")
	}
	return nil
}

// writeAnnotation puts an annotation on a node.
func writeAnnotation(node *corev1.Node, key string, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		// Texts, times and flags of ours: there is no value that JSON lacks.
		panic(fmt.Sprintf("quarantine: write annotation %q: %v", key, err))
	}
	if node.Annotations == nil {
		node.Annotations = map[string]string{}
	}
	node.Annotations[key] = string(text)
}

// OwnedOf is what is ours on a node, by its annotation.
func OwnedOf(node *corev1.Node) (v1alpha1.Owned, bool) {
	m, err := readMark(node)
	if err != nil || m == nil {
		return v1alpha1.Owned{}, false
	}
	return m.Owned, true
}

func openerOf(f v1alpha1.Fault) opener {
	return opener{
		Source: f.Source, Check: f.Check, Entity: f.Entity, Codes: slices.Clone(f.ErrorCodes), Fatal: f.Fatal,
		Message: nodefault.Cut(f.Message, 256), Action: f.RecommendedAction, Since: f.DetectedAt,
	}
}

// truncated is an opener that a status can have: one that somebody has taken the
// fault out of, or made longer, would else have every status refused, and the
// node be kept as it is.
func (o opener) truncated(at metav1.MicroTime) opener {
	const name, entity, code, codes, message, action = 128, 256, 64, 16, 1024, 64 // as the schema has them
	long := func(text string, most int) bool { return utf8.RuneCountInString(text) > most }
	if o.Source == "" || o.Check == "" || long(o.Source, name) || long(o.Check, name) || long(o.Entity, entity) || long(o.Message, message) ||
		long(string(o.Action), action) || len(o.Codes) > codes || slices.ContainsFunc(o.Codes, func(c string) bool { return long(c, code) }) {
		return opener{Source: unknownSource, Check: unknownCheck, Since: at}
	}
	if o.Since.IsZero() {
		o.Since = at
	}
	return o
}

func (o opener) toFault() v1alpha1.Fault {
	return v1alpha1.Fault{
		Source: o.Source, Check: o.Check, Entity: o.Entity, ErrorCodes: slices.Clone(o.Codes), Fatal: o.Fatal,
		Message: o.Message, RecommendedAction: o.Action, DetectedAt: o.Since,
	}
}

// overridden is an override as the status has it.
func (o *override) overridden() *v1alpha1.Overridden {
	return &v1alpha1.Overridden{Session: o.Session, DetectedAt: metav1.NewTime(o.At.Time), Faults: slices.Clone(o.Faults)}
}

// maxKeys is how many bytes of faults an override lists on the node: every
// watcher of nodes gets them.
const maxKeys = 8 << 10

// shortened is the override as the node has it. The status has all that it lists.
func (o *override) shortened() override {
	short, size := *o, 0
	for _, key := range o.Faults {
		size += len(key)
	}
	if size > maxKeys {
		short.Faults, short.All = nil, true
	}
	return short
}

// coversFault says whether a fault is one that the person knew of.
func (o *override) coversFault(key string, since time.Time) bool {
	return slices.Contains(o.Faults, key) || o.All && !since.Truncate(time.Microsecond).After(o.At.Time)
}

// endsSession says whether the tombstone is of the session that is under way.
func (t *tombstone) endsSession(st *v1alpha1.NodeFaultStatus) bool {
	if t == nil || !isOpen(st) {
		return false
	}
	return t.Session == st.Session || t.Orphan && st.Owned != nil && !t.At.Before(&st.Owned.AppliedAt)
}
