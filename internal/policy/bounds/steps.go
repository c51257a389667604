package bounds

import (
	"errors"
	"fmt"
	"regexp/syntax"

	"github.com/open-policy-agent/opa/v1/ast"
)

const (
	// maxSteps is of a regular expression on a text, which can not be interrupted,
	// and may give as many values.
	maxSteps = 2 << 20

	maxExpression = 512 // bytes; with {1000} in it each four of them can be a thousand steps
	maxGlob       = 64  // bytes; what is nested in it is tried in every way
)

// tooSlow says that a function would not end in time: what a regular expression
// costs is seen in what it is compiled to, and not in its length.
func tooSlow(name string, args []*ast.Term) error {
	pattern, text := 0, 1
	switch name {
	case "glob.match":
		if glob, ok := args[0].Value.(ast.String); ok && len(glob) > maxGlob {
			return fmt.Errorf("the pattern has %d bytes, at most %d are taken", len(glob), maxGlob)
		}
		return nil
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
