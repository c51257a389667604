// Package selector selects resources by their labels, in the grammar of Kubernetes label selectors:
// "a=b", "a!=b", "a in (b,c)", "a notin (b,c)", "a" and "!a", joined by commas that mean and.
//
// As in Kubernetes, "!=" and "notin" also select resources without the label. The numeric
// comparisons of node affinity are rejected.
//
// The parser is that of k8s.io/apimachinery, which is imported nowhere else. Matching is
// implemented here, because it runs for every resource of every round and must not allocate.
package selector

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// An Op relates a label to values.
type Op string

// The operators.
const (
	Equals    Op = "="      // the label has the one value
	NotEquals Op = "!="     // the label is absent or has another value
	In        Op = "in"     // the label has one of the values
	NotIn     Op = "notin"  // the label is absent or has none of the values
	Exists    Op = "exists" // the label exists, with any value
	NotExists Op = "!"      // the label is absent
)

// A Requirement is one condition on one label.
type Requirement struct {
	// Key is the label's name.
	Key string

	// Op is the operator.
	Op Op

	// Values holds one value for Equals and NotEquals, one or more for In and NotIn, and none for
	// the others.
	Values []string
}

// A Pair requires one label with one value; its tags are for configuration.
type Pair struct {
	// Label is the label's name.
	Label string `key:"label" doc:"Name of the label." validate:"required"`

	// Value is the label's value. The empty text is a value, except in a file, where it means a
	// missing value.
	Value string `key:"value" doc:"Value that the label must have. label_selector can ask for any value (region) and for the empty one (region=)." validate:"required"`
}

// Labels is what a selector is matched against.
type Labels interface {
	// Get returns the value of a label, and whether it exists.
	Get(key string) (string, bool)
}

// Map implements Labels with a map.
type Map map[string]string

// Get returns the value of a label, and whether it exists.
func (m Map) Get(key string) (string, bool) {
	v, ok := m[key]
	return v, ok
}

// A Selector is a list of requirements that must all be met. The zero value selects everything. It
// is immutable.
type Selector struct {
	reqs []Requirement // canonical: see New
}

// New returns a selector of requirements, in any order. It fails for requirements that the grammar
// cannot express: invalid keys or values, or a wrong number of values for the operator.
func New(reqs ...Requirement) (Selector, error) {
	list := make([]Requirement, 0, len(reqs))
	for _, r := range reqs {
		if _, err := labels.NewRequirement(r.Key, r.Op.upstreamOperator(), r.Values); err != nil {
			return Selector{}, fmt.Errorf("select by label %q: %w", r.Key, err)
		}
		list = append(list, r.toCanonical())
	}
	slices.SortFunc(list, compareRequirements)
	return Selector{reqs: slices.CompactFunc(list, equalRequirements)}, nil
}

// FromPairs returns a selector that requires every pair. Two values for one label are an error,
// because such a selector could not select anything.
func FromPairs(pairs []Pair) (Selector, error) {
	reqs := make([]Requirement, 0, len(pairs))
	values := make(map[string]string, len(pairs))
	for _, p := range pairs {
		if v, ok := values[p.Label]; ok && v != p.Value {
			return Selector{}, fmt.Errorf("select by label %q: it cannot be both %q and %q", p.Label, v, p.Value)
		}
		values[p.Label] = p.Value
		reqs = append(reqs, Requirement{Key: p.Label, Op: Equals, Values: []string{p.Value}})
	}
	return New(reqs...)
}

// Parse parses a selector. The empty text selects everything. An error contains the column of the
// invalid requirement, counted in bytes from 1.
func Parse(s string) (Selector, error) {
	// The upstream lexer treats a NUL as the end of the text, and would silently ignore the rest.
	if i := strings.IndexByte(s, 0); i >= 0 {
		return Selector{}, fmt.Errorf("parse selector %q: column %d: a NUL byte is not allowed", s, i+1)
	}
	parsed, err := labels.ParseToRequirements(s)
	if err != nil {
		column, cause := locateParseError(s, err)
		return Selector{}, fmt.Errorf("parse selector %q: column %d: %w", s, column, cause)
	}
	reqs := make([]Requirement, 0, len(parsed))
	for _, p := range parsed {
		op, ok := operatorFromUpstream(p.Operator())
		if !ok {
			return Selector{}, fmt.Errorf(
				"parse selector %q: operator %q of label %q is not supported; use =, !=, in, notin, or the label alone",
				s,
				p.Operator(),
				p.Key(),
			)
		}
		reqs = append(reqs, Requirement{Key: p.Key(), Op: op, Values: p.ValuesUnsorted()})
	}
	return New(reqs...)
}

// Matches reports whether labels l meet every requirement. It allocates
// nothing.
func (s Selector) Matches(l Labels) bool {
	for i := range s.reqs {
		if !matchesRequirement(&s.reqs[i], l) {
			return false
		}
	}
	return true
}

// Empty reports whether s has no requirements and selects everything.
func (s Selector) Empty() bool { return len(s.reqs) == 0 }

// Requirements returns the requirements of s, in the order of String. They must not be changed.
func (s Selector) Requirements() []Requirement { return s.reqs }

// String returns the selector in canonical form: sorted by key, without duplicates, a set of one
// value as an equality. Parse parses it to the same selector.
func (s Selector) String() string {
	var b strings.Builder
	for i, r := range s.reqs {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(r.String())
	}
	return b.String()
}

// String returns the requirement in the grammar that Parse parses.
func (r Requirement) String() string {
	switch r.Op {
	case Equals, NotEquals:
		return r.Key + string(r.Op) + strings.Join(r.Values, "")
	case In, NotIn:
		return r.Key + " " + string(r.Op) + " (" + strings.Join(r.Values, ",") + ")"
	case Exists:
		return r.Key
	case NotExists:
		return "!" + r.Key
	}
	return fmt.Sprintf("%s %q %q", r.Key, string(r.Op), r.Values)
}

func matchesRequirement(r *Requirement, l Labels) bool {
	v, ok := l.Get(r.Key)
	switch r.Op {
	case Equals, In:
		return ok && slices.Contains(r.Values, v)
	case NotEquals, NotIn:
		return !ok || !slices.Contains(r.Values, v)
	case Exists:
		return ok
	case NotExists:
		return !ok
	}
	return false
}

// toCanonical sorts the values, and converts a set of one to an equality.
func (r Requirement) toCanonical() Requirement {
	r.Values = slices.Compact(slices.Sorted(slices.Values(r.Values)))
	if len(r.Values) == 1 {
		switch r.Op {
		case In:
			r.Op = Equals
		case NotIn:
			r.Op = NotEquals
		case Equals, NotEquals, Exists, NotExists:
		}
	}
	return r
}

func compareRequirements(a, b Requirement) int {
	if c := strings.Compare(a.Key, b.Key); c != 0 {
		return c
	}
	if c := strings.Compare(string(a.Op), string(b.Op)); c != 0 {
		return c
	}
	return slices.Compare(a.Values, b.Values)
}

func equalRequirements(a, b Requirement) bool { return compareRequirements(a, b) == 0 }

// upstreamOperator returns the operator's name in the wrapped library.
func (o Op) upstreamOperator() selection.Operator {
	if o == NotExists {
		return selection.DoesNotExist
	}
	return selection.Operator(o)
}

// operatorFromUpstream returns this package's name of an operator, if it is supported.
func operatorFromUpstream(o selection.Operator) (op Op, supported bool) {
	switch o {
	case selection.Equals, selection.DoubleEquals:
		return Equals, true
	case selection.NotEquals:
		return NotEquals, true
	case selection.In:
		return In, true
	case selection.NotIn:
		return NotIn, true
	case selection.Exists:
		return Exists, true
	case selection.DoesNotExist:
		return NotExists, true
	case selection.GreaterThan, selection.LessThan:
	}
	return "", false
}

// locateParseError finds the requirement in s that the parser rejected. The parser does not report it,
// so locateParseError tries the requirements one by one.
func locateParseError(s string, err error) (column int, cause error) {
	start, depth := 0, 0
	for i := 0; i <= len(s); i++ {
		switch {
		case i < len(s) && s[i] == '(':
			depth++
		case i < len(s) && s[i] == ')':
			depth--
		case i == len(s) || s[i] == ',' && depth == 0:
			piece := s[start:i]
			text := strings.TrimLeft(piece, " \t\r\n")
			column = start + len(piece) - len(text) + 1
			if text == "" {
				return column, errors.New("a requirement is missing")
			}
			if _, err := labels.ParseToRequirements(text); err != nil {
				return column, trimErrorPrefix(err)
			}
			start = i + 1
		}
	}
	return 1, trimErrorPrefix(err)
}

// trimErrorPrefix removes the prefix of the parser's errors.
func trimErrorPrefix(err error) error {
	return errors.New(strings.TrimPrefix(err.Error(), "unable to parse requirement: "))
}
