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

// An ownedMark is the annotation that records the changes of the pipeline to a node.
type ownedMark struct {
	// UID is the UID of the node. An annotation that was copied from another node is
	// ignored.
	UID types.UID `json:"uid"`
	v1alpha1.Owned
	// Foreign means that others have cordoned the node.
	Foreign bool `json:"foreign,omitempty"`
	// Undone lists taints that a person has removed, as key:effect. They are not
	// restored.
	Undone []string `json:"undone,omitempty"`
	// Tracked means that the managed fields were empty and were restored, which is tried
	// once.
	Tracked bool `json:"tracked,omitempty"`
	// Fault is the fault that opened the session.
	Fault sessionFault `json:"fault"`
}

// A sessionFault is the fault that opened a session, with the fields that records need if the
// status is lost.
type sessionFault struct {
	Source  string                     `json:"source"`
	Check   string                     `json:"check"`
	Entity  string                     `json:"entity,omitempty"`
	Codes   []string                   `json:"codes,omitempty"`
	Fatal   bool                       `json:"fatal,omitempty"`
	Message string                     `json:"message,omitempty"`
	Action  v1alpha1.RecommendedAction `json:"action,omitempty"`
	Since   metav1.MicroTime           `json:"since"`
}

// A releaseRecord is the annotation that records how the pipeline ended a session.
type releaseRecord struct {
	UID     types.UID        `json:"uid"`
	Session string           `json:"session"`
	At      metav1.MicroTime `json:"at"`
	// Since is the start of the session. Cordon means that the node was uncordoned at its
	// end.
	Since  metav1.MicroTime `json:"since"`
	Cordon bool             `json:"cordon,omitempty"`
	Reason string           `json:"reason,omitempty"`
	// Orphan means that the session was no longer known from the node.
	Orphan bool `json:"orphan,omitempty"`
}

// An overrideRecord is the annotation that records a session that a person has undone.
type overrideRecord struct {
	UID     types.UID        `json:"uid"`
	Session string           `json:"session"`
	At      metav1.MicroTime `json:"at"`
	// Since is when the node was quarantined.
	Since metav1.MicroTime `json:"since,omitzero"`
	// Faults lists the faults at that time, as source/check/entity.
	Faults []string `json:"faults,omitempty"`
	// All means that the override covers all faults that had begun by then.
	All bool `json:"all,omitempty"`
}

// maxAnnotation limits the size of an annotation. It exceeds any annotation that the
// pipeline writes.
const maxAnnotation = 64 << 10

// The placeholder for the opening fault of a session if it is unknown.
const unknownSource, unknownCheck = "fleetloop", "unknown"

// maxSession limits the length of a session id. It exceeds any id that the pipeline
// creates.
const maxSession = 64

var (
	errOtherNode = errors.New("UID of another node")
	errTooLong   = errors.New("value too long")
)

// readOwnedMark reads the mark of a node, or returns nil without one. An invalid annotation is
// an error and is ignored.
func readOwnedMark(node *corev1.Node) (*ownedMark, error) {
	var m ownedMark
	found, err := readJSONAnnotation(node, v1alpha1.AnnotationOwned, &m)
	if err != nil || !found {
		return nil, err
	}
	if err := validateUIDSessionAndTime(node, m.UID, m.Session, m.AppliedAt); err != nil {
		return nil, err
	}
	for _, t := range m.Taints {
		if t.Key == "" || t.Effect == "" {
			return nil, fmt.Errorf("taint %q has no key or effect", t.ToString())
		}
	}
	m.Fault = m.Fault.validOrUnknown(m.AppliedAt)
	return &m, nil
}

func readReleaseRecord(node *corev1.Node) (*releaseRecord, error) {
	var t releaseRecord
	found, err := readJSONAnnotation(node, v1alpha1.AnnotationReleased, &t)
	if err != nil || !found {
		return nil, err
	}
	if err := validateUIDSessionAndTime(node, t.UID, t.Session, t.At); err != nil {
		return nil, err
	}
	return &t, nil
}

func readOverride(node *corev1.Node) (*overrideRecord, error) {
	var o overrideRecord
	found, err := readJSONAnnotation(node, v1alpha1.AnnotationOverridden, &o)
	if err != nil || !found {
		return nil, err
	}
	if err := validateUIDSessionAndTime(node, o.UID, o.Session, o.At); err != nil {
		return nil, err
	}
	return &o, nil
}

func readJSONAnnotation(node *corev1.Node, key string, into any) (found bool, err error) {
	text, exists := node.Annotations[key]
	if !exists {
		return false, nil
	}
	if len(text) > maxAnnotation {
		return false, errTooLong
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		return false, err
	}
	return true, nil
}

func validateUIDSessionAndTime(node *corev1.Node, uid types.UID, session string, at metav1.MicroTime) error {
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

// setJSONAnnotation sets an annotation on a node.
func setJSONAnnotation(node *corev1.Node, key string, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		// The values hold only texts, times and flags, which JSON can always encode.
		panic(fmt.Sprintf("quarantine: write annotation %q: %v", key, err))
	}
	if node.Annotations == nil {
		node.Annotations = map[string]string{}
	}
	node.Annotations[key] = string(text)
}

func newSessionFault(f v1alpha1.Fault) sessionFault {
	return sessionFault{
		Source:  f.Source,
		Check:   f.Check,
		Entity:  f.Entity,
		Codes:   slices.Clone(f.ErrorCodes),
		Fatal:   f.Fatal,
		Message: nodefault.TruncateText(f.Message, 256),
		Action:  f.RecommendedAction,
		Since:   f.DetectedAt,
	}
}

// validOrUnknown replaces a session fault that the status schema rejects. If a person has removed or
// extended its fields, each status write would fail otherwise, and the node would keep
// its state.
func (o sessionFault) validOrUnknown(fallbackSince metav1.MicroTime) sessionFault {
	if !o.fitsSchema() {
		return sessionFault{Source: unknownSource, Check: unknownCheck, Since: fallbackSince}
	}
	if o.Since.IsZero() {
		o.Since = fallbackSince
	}
	return o
}

// fitsSchema reports whether the schema of the status accepts the fields of a session fault.
func (o sessionFault) fitsSchema() bool {
	// The limits of the schema.
	const maxName, maxEntity, maxCode, maxCodes, maxMessage, maxAction = 128, 256, 64, 16, 1024, 64
	if o.Source == "" || o.Check == "" || len(o.Codes) > maxCodes {
		return false
	}
	for _, code := range o.Codes {
		if utf8.RuneCountInString(code) > maxCode {
			return false
		}
	}
	return utf8.RuneCountInString(o.Source) <= maxName &&
		utf8.RuneCountInString(o.Check) <= maxName &&
		utf8.RuneCountInString(o.Entity) <= maxEntity &&
		utf8.RuneCountInString(o.Message) <= maxMessage &&
		utf8.RuneCountInString(string(o.Action)) <= maxAction
}

func (o sessionFault) toFault() v1alpha1.Fault {
	return v1alpha1.Fault{
		Source:            o.Source,
		Check:             o.Check,
		Entity:            o.Entity,
		ErrorCodes:        slices.Clone(o.Codes),
		Fatal:             o.Fatal,
		Message:           o.Message,
		RecommendedAction: o.Action,
		DetectedAt:        o.Since,
	}
}

// toStatus converts an override to its status.
func (o *overrideRecord) toStatus() *v1alpha1.Overridden {
	return &v1alpha1.Overridden{
		Session:    o.Session,
		DetectedAt: metav1.NewTime(o.At.Time),
		Faults:     slices.Clone(o.Faults),
	}
}

// maxKeys limits the bytes of the faults in an override on the node, because every
// watcher of nodes receives them.
const maxKeys = 8 << 10

// coveringAllFaultsIfTooLarge returns the override for the node. The status has the full list.
func (o *overrideRecord) coveringAllFaultsIfTooLarge() overrideRecord {
	size := 0
	for _, key := range o.Faults {
		size += len(key)
	}
	short := *o
	if size > maxKeys {
		short.Faults, short.All = nil, true
	}
	return short
}

// coversFault reports whether a fault is covered by the override.
func (o *overrideRecord) coversFault(key string, since time.Time) bool {
	return slices.Contains(o.Faults, key) || o.All && !since.Truncate(time.Microsecond).After(o.At.Time)
}

// endsOpenSessionOf reports whether the release record belongs to the open session.
func (t *releaseRecord) endsOpenSessionOf(status *v1alpha1.NodeFaultStatus) bool {
	if t == nil || !isSessionOpen(status) {
		return false
	}
	endsUnknownSession := t.Orphan && status.Owned != nil && !t.At.Before(&status.Owned.AppliedAt)
	return t.Session == status.Session || endsUnknownSession
}
