package policy

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/open-policy-agent/opa/v1/ast"
)

const (
	maxMessages     = 32  // violations or warnings of a decision
	maxMessageBytes = 512 // of one of them
	maxApprovals    = 16  // limited by the space in an execution
	maxGroups       = 32
	maxGroup        = 256 // bytes of its name
	maxName         = 128
)

// A Mode defines the effect of a denial. Without a decision, the execution is denied in every mode.
type Mode string

// The modes.
const (
	Enforce Mode = "enforce" // the execution is denied
	Warn    Mode = "warn"    // the denial becomes a warning, and the execution continues
	Audit   Mode = "audit"   // like warn, for a set that is on trial
)

// AnnotationMode is the annotation with the mode on the ConfigMap of a set.
const AnnotationMode = "kubernaut.io/policy-mode"

// ParseMode parses a mode. Empty means Enforce.
func ParseMode(s string) (Mode, error) {
	switch m := Mode(s); m {
	case "":
		return Enforce, nil
	case Enforce, Warn, Audit:
		return m, nil
	}
	return "", fmt.Errorf("unknown mode %q: want %s, %s or %s", s, Enforce, Warn, Audit)
}

// A Decision is the result of a policy set.
type Decision struct {
	Allow           bool
	Violations      []string
	Warnings        []string
	RequireDryRun   bool
	RequireApproval bool
	Approvals       Approvals
	PolicyName      string
	Mode            string // if not enforce, Allow is true despite violations
}

// Approvals describes the required approvals.
type Approvals struct {
	Count                  int
	Groups                 []string
	RequesterCannotApprove bool
}

// applyMode returns the decision with the effect of a mode.
func (d Decision) applyMode(mode Mode) Decision {
	d.Mode = string(mode)
	if d.Allow || mode == Enforce {
		return d
	}
	d.Allow = true
	for _, v := range d.Violations {
		d.Warnings = append(d.Warnings, "would be denied: "+v)
	}
	return d
}

// decodeDecision decodes a decision strictly, because the intent of a malformed one is unknown.
func decodeDecision(v ast.Value) (Decision, error) {
	o, ok := v.(ast.Object)
	if !ok {
		return Decision{}, fmt.Errorf("the decision is %s, want an object", ast.ValueName(v))
	}
	f := fieldReader{object: o, of: "the decision"}
	d := Decision{
		Allow:           f.readBool("allow", true),
		Violations:      truncateMessages(f.readStrings("violations", true)),
		Warnings:        truncateMessages(f.readStrings("warnings", false)),
		RequireDryRun:   f.readBool("requireDryRun", true),
		RequireApproval: f.readBool("requireApproval", true),
		PolicyName:      f.readString("policyName", true),
	}
	if t := f.lookUpField("approvals", false); t != nil {
		sub, ok := t.Value.(ast.Object)
		if !ok {
			return Decision{}, fmt.Errorf("approvals is %s, want an object", ast.ValueName(t.Value))
		}
		a := fieldReader{object: sub, of: "approvals"}
		d.Approvals = Approvals{
			Count: a.readApprovalCount(
				"count",
			), Groups: a.readStrings("groups", false), RequesterCannotApprove: a.readBool("requesterCannotApprove", false),
		}
		if err := a.firstErrorOrUnknownField(); err != nil {
			return Decision{}, err
		}
		if n := len(d.Approvals.Groups); n > maxGroups {
			return Decision{}, fmt.Errorf("groups has %d entries, at most %d are allowed", n, maxGroups)
		}
		for _, g := range d.Approvals.Groups { // a group without a name has no members, and a status limits the length
			if g == "" || len(g) > maxGroup {
				return Decision{}, fmt.Errorf("a group has %d bytes, want 1 to %d", len(g), maxGroup)
			}
		}
	}
	if err := f.firstErrorOrUnknownField(); err != nil {
		return Decision{}, err
	}
	switch {
	case d.PolicyName == "" || len(d.PolicyName) > maxName:
		return Decision{}, fmt.Errorf("policyName has %d bytes, want 1 to %d", len(d.PolicyName), maxName)
	case d.Allow && len(d.Violations) > 0:
		return Decision{}, fmt.Errorf("allow is true, but there is a violation: %s", d.Violations[0])
	case !d.Allow && len(d.Violations) == 0:
		d.Violations = []string{"no rule of the policy allows the action"}
	}
	if d.RequireApproval {
		d.Approvals.Count = max(d.Approvals.Count, 1)
	}
	return d, nil
}

// fieldReader reads the fields of an object one by one; firstErrorOrUnknownField returns the first error.
type fieldReader struct {
	object ast.Object
	of     string
	known  []string
	err    error
}

func (f *fieldReader) lookUpField(name string, required bool) *ast.Term {
	f.known = append(f.known, name)
	t := f.object.Get(ast.InternedTerm(name))
	if t == nil && required {
		f.setFirstErrorf("%s lacks %q", f.of, name)
	}
	return t
}

func (f *fieldReader) setFirstErrorf(format string, args ...any) {
	if f.err == nil {
		f.err = fmt.Errorf(format, args...)
	}
}

func (f *fieldReader) firstErrorOrUnknownField() error {
	if f.err == nil && f.object.Len() > 0 {
		f.object.Foreach(func(k, _ *ast.Term) {
			name, ok := k.Value.(ast.String)
			if !ok || !slices.Contains(f.known, string(name)) {
				f.setFirstErrorf("%s has the unknown field %s: want %s", f.of, k.Value, strings.Join(f.known, ", "))
			}
		})
	}
	return f.err
}

func (f *fieldReader) readBool(name string, required bool) bool {
	t := f.lookUpField(name, required)
	if t == nil {
		return false
	}
	b, ok := t.Value.(ast.Boolean)
	if !ok {
		f.setFirstErrorf("%s is %s, want a boolean", name, ast.ValueName(t.Value))
	}
	return bool(b)
}

func (f *fieldReader) readString(name string, required bool) string {
	t := f.lookUpField(name, required)
	if t == nil {
		return ""
	}
	s, ok := t.Value.(ast.String)
	if !ok {
		f.setFirstErrorf("%s is %s, want a string", name, ast.ValueName(t.Value))
	}
	return string(s)
}

func (f *fieldReader) readApprovalCount(name string) int {
	t := f.lookUpField(name, false)
	if t == nil {
		return 0
	}
	n, ok := t.Value.(ast.Number)
	i, whole := 0, false
	if ok {
		i, whole = n.Int()
	}
	if !whole || i < 0 || i > maxApprovals {
		f.setFirstErrorf("%s is %s, want a number from 0 to %d", name, t.Value, maxApprovals)
		return 0
	}
	return i
}

// readStrings returns a set or a list of strings in alphabetical order.
func (f *fieldReader) readStrings(name string, required bool) []string {
	t := f.lookUpField(name, required)
	if t == nil {
		return nil
	}
	var all []string
	each := func(t *ast.Term) {
		s, ok := t.Value.(ast.String)
		if !ok {
			f.setFirstErrorf("%s contains %s, want strings", name, ast.ValueName(t.Value))
			return
		}
		all = append(all, string(s))
	}
	switch v := t.Value.(type) {
	case ast.Set:
		v.Foreach(each)
	case *ast.Array:
		v.Foreach(each)
	default:
		f.setFirstErrorf("%s is %s, want a set or a list of strings", name, ast.ValueName(t.Value))
		return nil
	}
	slices.Sort(all)
	return all
}

// truncateMessages limits messages to the space in a status.
func truncateMessages(messages []string) []string {
	if len(messages) > maxMessages {
		messages = append(messages[:maxMessages-1], fmt.Sprintf("and %d more", len(messages)-maxMessages+1))
	}
	for i, s := range messages {
		messages[i] = truncateText(s, maxMessageBytes)
	}
	return messages
}

// truncateText truncates a text to a number of bytes.
func truncateText(text string, maxBytes int) string {
	if len(text) <= maxBytes {
		return text
	}
	text = text[:maxBytes-len("…")]
	for len(text) > 0 && !utf8.ValidString(text) {
		text = text[:len(text)-1]
	}
	return text + "…"
}
