package intake

import (
	"cmp"
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
}

// An Entity is a component of a node.
type Entity struct {
	Type, Value string
}

// Overrides are actions that a monitor forces or skips, regardless of the rules.
type Overrides struct {
	Force, Skip bool
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
	fail := func(err error) (nodefault.Report, error) {
		return nodefault.Report{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err := e.validateNodeAgentAndCheck(); err != nil {
		return fail(err)
	}
	action, err := e.recommendedActionOrCustom()
	if err != nil {
		return fail(err)
	}
	quarantine, err := e.Quarantine.forceOrSkip("quarantineOverrides")
	if err != nil {
		return fail(err)
	}
	drain, err := e.Drain.forceOrSkip("drainOverrides")
	if err != nil {
		return fail(err)
	}
	entity, err := joinSortedEntities(e.Entities)
	if err != nil {
		return fail(err)
	}
	at := e.At
	if at.IsZero() || at.After(now) || at.Year() < 1970 {
		at = now // a wrong clock must not create a fault in the future
	}
	return nodefault.Report{Node: e.Node, Healthy: e.Healthy, Fault: v1alpha1.Fault{
		Source: e.Agent, Check: e.Check, Entity: entity,
		ComponentClass: removeUnprintableAndTruncate(e.ComponentClass, maxClass), ErrorCodes: trimAndLimitCodes(e.ErrorCodes), Fatal: e.Fatal,
		Message: removeUnprintableAndTruncate(e.Message, maxMessage), RecommendedAction: action, ObserveOnly: e.ObserveOnly,
		QuarantineOverride: quarantine, DrainOverride: drain,
		DetectedAt: metav1.NewMicroTime(at.UTC().Truncate(time.Microsecond)), // the precision that the API stores
	}}, nil
}

// validateNodeAgentAndCheck validates the fields that identify a fault.
func (e Event) validateNodeAgentAndCheck() error {
	if !IsNodeName(e.Node) {
		if e.Node == "" {
			return errors.New("nodeName missing: set it to the name of the Node object")
		}
		return fmt.Errorf("nodeName %q is not a valid node name", e.Node)
	}
	if err := validateIdentifier("agent", e.Agent); err != nil {
		return err
	}
	return validateIdentifier("checkName", e.Check)
}

// IsNodeName reports whether a text is a valid name of a node.
func IsNodeName(s string) bool {
	return len(validation.IsDNS1123Subdomain(s)) == 0
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

func (e Event) recommendedActionOrCustom() (v1alpha1.RecommendedAction, error) {
	action, field := e.Action, "recommendedAction"
	if action == ActionCustom {
		if action, field = e.CustomAction, "customRecommendedAction"; action == "" {
			return "", errors.New("customRecommendedAction missing: it is required if recommendedAction is CUSTOM")
		}
	}
	if len(action) > maxAction || !isPrintable(action) {
		return "", fmt.Errorf("%s %q is not a valid action: use at most %d printable characters", field, action, maxAction)
	}
	return cmp.Or(v1alpha1.RecommendedAction(action), v1alpha1.ActionNone), nil
}

func (o Overrides) forceOrSkip(field string) (v1alpha1.Override, error) {
	switch {
	case o.Force && o.Skip:
		return "", fmt.Errorf("%s sets both force and skip: set one", field)
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
	return joinEntitiesOrHash(slices.Compact(all)), nil
}

// joinEntitiesOrHash joins as many entities as fit. A hash of all entities distinguishes
// truncated lists.
func joinEntitiesOrHash(all []string) string {
	whole := strings.Join(all, separator)
	if utf8.RuneCountInString(whole) <= maxEntity {
		return whole
	}
	tail := "#" + shortSHA256(whole)
	room, n := maxEntity-len(separator)-len(tail), 0
	var kept []string
	for _, e := range all {
		if n += utf8.RuneCountInString(e) + len(separator); n > room {
			break
		}
		kept = append(kept, e)
	}
	return strings.Join(append(kept, tail), separator)
}

// trimAndLimitCodes returns the error codes without spaces and duplicates, within the
// limits.
func trimAndLimitCodes(in []string) []string {
	var out []string
	for _, c := range in {
		if c = strings.TrimSpace(removeUnprintableAndTruncate(c, maxCode)); c != "" && !slices.Contains(out, c) && len(out) < maxCodes {
			out = append(out, c)
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
