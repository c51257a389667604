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

// An Event is a health event as monitors send it, whatever the form.
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
	// Action is what the monitor recommends; CustomAction is what it is where
	// Action is ActionCustom.
	Action       string
	CustomAction string
	// ObserveOnly is a strategy that has nothing done.
	ObserveOnly       bool
	Quarantine, Drain Overrides
	// At is when it was found, zero if the monitor does not say.
	At time.Time
}

// An Entity is a part of a node.
type Entity struct {
	Type, Value string
}

// Overrides are what a monitor has done whatever the rules say.
type Overrides struct {
	Force, Skip bool
}

// ActionCustom says that the action has a name of the monitor's own.
const ActionCustom = "CUSTOM"

// What a fault can hold, as its schema says.
const (
	maxName    = 128
	maxEntity  = 256
	maxClass   = 64
	maxCodes   = 16
	maxCode    = 64
	maxMessage = 1024
	maxAction  = 64
)

// Report makes a report of the event: what names the fault must be right, what
// describes it is made to fit. The error is an ErrInvalid.
func (e Event) Report(now time.Time) (nodefault.Report, error) {
	fail := func(err error) (nodefault.Report, error) {
		return nodefault.Report{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err := e.checkNames(); err != nil {
		return fail(err)
	}
	action, err := e.parseAction()
	if err != nil {
		return fail(err)
	}
	quarantine, err := e.Quarantine.overrideFor("quarantineOverrides")
	if err != nil {
		return fail(err)
	}
	drain, err := e.Drain.overrideFor("drainOverrides")
	if err != nil {
		return fail(err)
	}
	entity, err := joinEntities(e.Entities)
	if err != nil {
		return fail(err)
	}
	at := e.At
	if at.IsZero() || at.After(now) || at.Year() < 1970 {
		at = now // a clock that is wrong must not have a fault begin tomorrow
	}
	return nodefault.Report{Node: e.Node, Healthy: e.Healthy, Fault: v1alpha1.Fault{
		Source: e.Agent, Check: e.Check, Entity: entity,
		ComponentClass: truncateText(e.ComponentClass, maxClass), ErrorCodes: normalizeCodes(e.ErrorCodes), Fatal: e.Fatal,
		Message: truncateText(e.Message, maxMessage), RecommendedAction: action, ObserveOnly: e.ObserveOnly,
		QuarantineOverride: quarantine, DrainOverride: drain,
		DetectedAt: metav1.NewMicroTime(at.UTC().Truncate(time.Microsecond)), // as it can be stored
	}}, nil
}

// checkNames checks what tells faults apart.
func (e Event) checkNames() error {
	if !NodeName(e.Node) {
		if e.Node == "" {
			return errors.New("nodeName missing: set it to the name of the Node object")
		}
		return fmt.Errorf("nodeName %q is not a valid node name", e.Node)
	}
	if err := checkName("agent", e.Agent); err != nil {
		return err
	}
	return checkName("checkName", e.Check)
}

// NodeName says whether a text can be the name of a node.
func NodeName(s string) bool {
	return len(validation.IsDNS1123Subdomain(s)) == 0
}

func checkName(field, value string) error {
	switch {
	case value == "":
		return fmt.Errorf("%s missing: it identifies the fault", field)
	case utf8.RuneCountInString(value) > maxName:
		return fmt.Errorf("%s is longer than %d characters", field, maxName)
	case !printable(value):
		return fmt.Errorf("%s %q contains unprintable characters", field, value)
	}
	return nil
}

func printable(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

func (e Event) parseAction() (v1alpha1.RecommendedAction, error) {
	action, field := e.Action, "recommendedAction"
	if action == ActionCustom {
		if action, field = e.CustomAction, "customRecommendedAction"; action == "" {
			return "", errors.New("customRecommendedAction missing: it is required if recommendedAction is CUSTOM")
		}
	}
	if len(action) > maxAction || !printable(action) {
		return "", fmt.Errorf("%s %q is not a valid action: use at most %d printable characters", field, action, maxAction)
	}
	return cmp.Or(v1alpha1.RecommendedAction(action), v1alpha1.ActionNone), nil
}

func (o Overrides) overrideFor(field string) (v1alpha1.Override, error) {
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

// joinEntities writes entities as a fault has them: always the same for the same.
func joinEntities(entities []Entity) (string, error) {
	var all []string
	for _, e := range entities {
		text := strings.ReplaceAll(e.Value, separator, ";")
		if e.Type != "" {
			text = strings.ReplaceAll(e.Type, separator, ";") + "/" + text
		}
		if text == "" {
			continue
		}
		if !printable(text) {
			return "", fmt.Errorf("entitiesImpacted: %q contains unprintable characters", text)
		}
		all = append(all, text)
	}
	slices.Sort(all)
	return joinWithLimit(slices.Compact(all)), nil
}

// joinWithLimit joins as many as have room. The hash of those that have none tells
// different ones apart.
func joinWithLimit(all []string) string {
	whole := strings.Join(all, separator)
	if utf8.RuneCountInString(whole) <= maxEntity {
		return whole
	}
	tail := "#" + shortHash(whole)
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

// normalizeCodes are those of the error without blanks and repeats.
func normalizeCodes(in []string) []string {
	var out []string
	for _, c := range in {
		if c = strings.TrimSpace(truncateText(c, maxCode)); c != "" && !slices.Contains(out, c) && len(out) < maxCodes {
			out = append(out, c)
		}
	}
	return out
}

// truncateText makes a text fit that is for people.
func truncateText(text string, most int) string {
	text = strings.TrimSpace(strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "")))
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}
