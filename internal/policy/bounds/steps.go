package bounds

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

const (
	// maxSteps is of a regular expression on a text, which can not be interrupted,
	// and may give as many values.
	maxSteps = 2 << 20

	maxExpression = 512 // bytes; with {1000} in it each four of them can be a thousand steps
	maxGlob       = 64  // bytes; what is nested in it is tried in every way
	maxQuantity   = 64  // bytes of a number with a unit
	maxExponent   = 3   // digits: it is written out
)

// tooSlow says that a function would not end in time: what a regular expression
// costs is seen in what it is compiled to, and not in its length.
func tooSlow(name string, args []*ast.Term) error {
	pattern, text := 0, 1
	switch name {
	case "glob.match":
		return slowGlob(args[0].Value, args[2].Value)
	case "units.parse", "units.parse_bytes":
		return slowQuantity(args[0].Value)
	case "regex.replace":
		pattern, text = 1, 0
	case "regex.match", "regex.is_valid", "regex.find_n", "regex.find_all_string_submatch_n", "regex.split":
	default:
		return nil
	}
	expression, ok := args[pattern].Value.(ast.String)
	if !ok {
		return nil // the function says what is wrong with it
	}
	if len(expression) > maxExpression {
		return fmt.Errorf("the pattern has %d bytes, at most %d are taken", len(expression), maxExpression)
	}
	parsed, err := syntax.Parse(string(expression), syntax.Perl)
	if err != nil || text >= len(args) {
		return nil //nolint:nilerr // the function says what is wrong with it
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil //nolint:nilerr // the same
	}
	w, err := weigh(args[text].Value, 0)
	if err == nil && w*len(program.Inst) > maxSteps {
		err = errors.New("its arguments are too large together: it would take too long")
	}
	return err
}

// slowGlob says that a glob would not end in time on a text. What is
// between its stars is tried at each place behind what is before it, and each
// alternative at each of them.
func slowGlob(pattern, text ast.Value) error {
	glob, ok := pattern.(ast.String)
	if !ok {
		return nil // the function says what is wrong with it
	}
	if len(glob) > maxGlob {
		return fmt.Errorf("the pattern has %d bytes, at most %d are taken", len(glob), maxGlob)
	}
	length, err := weigh(text, 0)
	if err != nil {
		return err
	}
	stars, commas, steps := 0, 0, 1
	for i, c := range []byte(glob) {
		switch {
		case c == '*' && (i == 0 || glob[i-1] != '*'):
			if stars > 0 {
				steps = steps * max(length-stars+1, stars) / stars // so many ways there are to place what is between them
			}
			stars++
		case c == ',':
			commas++
		case c == '{' || c == '}':
			steps *= commas + 1
			commas = 0
		}
		if steps > maxSteps {
			return fmt.Errorf("the pattern has too much in it that can be anything, for a text of %d bytes: it would take too long", length)
		}
	}
	return nil
}

// slowQuantity says that a number with a unit is too long to be written out.
func slowQuantity(v ast.Value) error {
	text, ok := v.(ast.String)
	if !ok {
		return nil // the function says what is wrong with it
	}
	if len(text) > maxQuantity {
		return fmt.Errorf("the number has %d bytes, at most %d are taken", len(text), maxQuantity)
	}
	_, exponent, _ := strings.Cut(strings.ToLower(string(text)), "e")
	exponent = strings.TrimLeft(exponent, "+-")
	if digits := len(exponent) - len(strings.TrimLeft(exponent, "0123456789")); digits > maxExponent {
		return fmt.Errorf("the exponent has %d digits, at most %d are taken", digits, maxExponent)
	}
	return nil
}
