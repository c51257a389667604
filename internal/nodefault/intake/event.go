package intake

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault"
)

// An Event is a health event of a monitor, independent of the protocol.
type Event struct {
	Node           string
	Agent          string
	Check          string
	ComponentClass string
	Entities       []Entity
	ErrorCodes     []string
	Fatal          bool
	Healthy        bool
	Message        string
	// Action is the recommended action. If it is ActionCustom, CustomAction is its name.
	Action       string
	CustomAction string
	// ObserveOnly means that no action is taken.
	ObserveOnly       bool
	Quarantine, Drain Overrides
	// At is the time of detection. Zero means that the monitor did not report it.
	At time.Time
	// GeneratedAt is the time at which the monitor generated the event. It orders the
	// events of the monitor. Zero means that they are ordered by their arrival.
	GeneratedAt time.Time
}

// An Entity is a component of a node.
type Entity struct {
	Type  string `json:"entityType"`
	Value string `json:"entityValue"`
}

// Overrides are actions that a monitor forces or skips, regardless of the rules.
type Overrides struct {
	Force bool `json:"force"`
	Skip  bool `json:"skip"`
}

// ActionCustom means that CustomAction has the name of the action.
const ActionCustom = "CUSTOM"

// Limits of a fault, as in its schema.
const (
	maxName    = 128
	maxEntity  = 256
	maxClass   = 64
	maxCodes   = 16
	maxCode    = 64
	maxMessage = 1024
	maxAction  = 64
)

// ToReport converts the event to a report. Invalid identifying fields are errors that wrap
// ErrInvalid. Descriptive fields are truncated to fit.
func (e Event) ToReport(now time.Time) (nodefault.Report, error) {
	fault, err := e.toFault(now)
	if err != nil {
		return nodefault.Report{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nodefault.Report{Node: e.Node, Healthy: e.Healthy, Fault: fault}, nil
}

func (e Event) toFault(now time.Time) (fault v1alpha1.Fault, err error) {
	if err := e.validateIdentifyingFields(); err != nil {
		return fault, err
	}
	fault.Source = e.Agent
	fault.Check = e.Check
	fault.ComponentClass = removeUnprintableAndTruncate(e.ComponentClass, maxClass)
	fault.ErrorCodes = trimAndLimitCodes(e.ErrorCodes)
	fault.Fatal = e.Fatal
	fault.Message = removeUnprintableAndTruncate(e.Message, maxMessage)
	fault.ObserveOnly = e.ObserveOnly
	if fault.RecommendedAction, err = e.resolveCustomAction(); err != nil {
		return fault, err
	}
	if fault.QuarantineOverride, err = e.Quarantine.forceOrSkipNotBoth("quarantineOverrides"); err != nil {
		return fault, err
	}
	if fault.DrainOverride, err = e.Drain.forceOrSkipNotBoth("drainOverrides"); err != nil {
		return fault, err
	}
	if fault.Entity, err = joinSortedEntities(e.Entities); err != nil {
		return fault, err
	}
	at := e.At
	if at.IsZero() || at.After(now) || at.Year() < 1970 {
		at = now // a wrong clock must not create a fault in the future
	}
	fault.DetectedAt = toMicroTime(at)
	if !e.GeneratedAt.IsZero() {
		generated := toMicroTime(e.GeneratedAt)
		fault.GeneratedAt = &generated
	}
	return fault, nil
}

// toMicroTime returns a time with the precision that the API stores.
func toMicroTime(t time.Time) metav1.MicroTime {
	return metav1.NewMicroTime(t.UTC().Truncate(time.Microsecond))
}

// validateIdentifyingFields validates the fields that identify a fault.
func (e Event) validateIdentifyingFields() error {
	if e.Node == "" {
		return errors.New("nodeName missing: set it to the name of the Node object")
	}
	if len(validation.IsDNS1123Subdomain(e.Node)) > 0 {
		return fmt.Errorf("nodeName %q is not a valid node name", e.Node)
	}
	if err := validateIdentifier("agent", e.Agent); err != nil {
		return err
	}
	return validateIdentifier("checkName", e.Check)
}

func validateIdentifier(field, value string) error {
	switch {
	case value == "":
		return fmt.Errorf("%s missing: it identifies the fault", field)
	case utf8.RuneCountInString(value) > maxName:
		return fmt.Errorf("%s is longer than %d characters", field, maxName)
	case !isPrintable(value):
		return fmt.Errorf("%s %q contains unprintable characters", field, value)
	}
	return nil
}

func isPrintable(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

func (e Event) resolveCustomAction() (v1alpha1.RecommendedAction, error) {
	action, field := e.Action, "recommendedAction"
	if action == ActionCustom {
		action, field = e.CustomAction, "customRecommendedAction"
		if action == "" {
			return "", errors.New("customRecommendedAction missing: it is required if recommendedAction is CUSTOM")
		}
	}
	if len(action) > maxAction || !isPrintable(action) {
		return "", fmt.Errorf("%s %q is not a valid action: use at most %d printable characters", field, action, maxAction)
	}
	return cmp.Or(v1alpha1.RecommendedAction(action), v1alpha1.ActionNone), nil
}

func (o Overrides) forceOrSkipNotBoth(fieldForError string) (v1alpha1.Override, error) {
	switch {
	case o.Force && o.Skip:
		return "", fmt.Errorf("%s sets both force and skip: set one", fieldForError)
	case o.Force:
		return v1alpha1.OverrideForce, nil
	case o.Skip:
		return v1alpha1.OverrideSkip, nil
	}
	return "", nil
}

// joinSortedEntities joins entities into the entity of a fault. The result does not depend on
// their order.
func joinSortedEntities(entities []Entity) (string, error) {
	var all []string
	for _, e := range entities {
		text := strings.ReplaceAll(e.Value, separator, ";")
		if e.Type != "" {
			text = strings.ReplaceAll(e.Type, separator, ";") + "/" + text
		}
		if text == "" {
			continue
		}
		if !isPrintable(text) {
			return "", fmt.Errorf("entitiesImpacted: %q contains unprintable characters", text)
		}
		all = append(all, text)
	}
	slices.Sort(all)
	return joinOrTruncateWithHash(slices.Compact(all)), nil
}

// joinOrTruncateWithHash joins as many entities as fit. A hash of all entities distinguishes
// truncated lists.
func joinOrTruncateWithHash(all []string) string {
	whole := strings.Join(all, separator)
	if utf8.RuneCountInString(whole) <= maxEntity {
		return whole
	}
	tail := "#" + shortSHA256(whole)
	room := maxEntity - len(separator) - len(tail)
	var kept []string
	for _, e := range all {
		room -= utf8.RuneCountInString(e) + len(separator)
		if room < 0 {
			break
		}
		kept = append(kept, e)
	}
	return strings.Join(append(kept, tail), separator)
}

func shortSHA256(text string) string {
	const kept = 8
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:kept])
}

// trimAndLimitCodes returns the error codes without spaces and duplicates, within the
// limits.
func trimAndLimitCodes(in []string) []string {
	var out []string
	for _, code := range in {
		code = strings.TrimSpace(removeUnprintableAndTruncate(code, maxCode))
		isNew := code != "" && !slices.Contains(out, code)
		if isNew && len(out) < maxCodes {
			out = append(out, code)
		}
	}
	return out
}

// removeUnprintableAndTruncate removes unprintable characters from a descriptive text and truncates it.
func removeUnprintableAndTruncate(text string, maxRunes int) string {
	text = strings.TrimSpace(strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "")))
	if utf8.RuneCountInString(text) <= maxRunes {
		return text
	}
	return string([]rune(text)[:maxRunes-1]) + "…"
}
