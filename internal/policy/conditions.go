package policy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
)

const (
	maxConditionBytes = 32 << 10
	maxMessageText    = 1024 // limited by the space in a status
)

// A Condition is a compiled module from an execution. Neither its compilation nor its evaluation is
// limited, so both must run in a limited process: see Evaluator.
type Condition struct {
	allow, message *preparedQuery // message is nil if the module has none
	shape, unseen  *inputShape
}

// A CompileError means that a module can never be evaluated, whatever the input.
type CompileError struct{ Err error }

// Error returns the message of the cause.
func (e *CompileError) Error() string { return "compile condition: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *CompileError) Unwrap() error { return e.Err }

// CompileCondition compiles a module. It returns a *CompileError if the module can never be
// evaluated.
func CompileCondition(ctx context.Context, module string) (*Condition, error) {
	s, err := newConditionInputShape()
	if err != nil {
		return nil, err
	}
	c, err := compileConditionModule(ctx, module, s)
	if err != nil {
		return nil, &CompileError{err}
	}
	return c, nil
}

// EvaluateInput reports whether the module's rule allow holds for an input, and returns its rule
// message, if it has one. The module may have any package. An error, such as an undefined rule,
// never counts as passed.
func (c *Condition) EvaluateInput(ctx context.Context, input json.RawMessage, now time.Time) (passed bool, message string, err error) {
	v, err := c.shape.ParseAndCheckInput(input, c.unseen)
	if err != nil {
		return false, "", err
	}
	t, err := c.allow.evaluateQuery(ctx, v, now, 0)
	if err != nil {
		return false, "", fmt.Errorf("evaluate allow: %w", err)
	}
	allow, ok := t.Value.(ast.Boolean)
	if !ok {
		return false, "", fmt.Errorf("evaluate allow: got %s, want a boolean", ast.ValueName(t.Value))
	}
	message, err = c.evaluateOptionalMessage(ctx, v, now)
	if err != nil {
		return false, "", fmt.Errorf("evaluate message: %w", err)
	}
	return bool(allow), message, nil
}

// evaluateOptionalMessage returns the message. An undefined message is empty: rules often define one for
// one case only.
func (c *Condition) evaluateOptionalMessage(ctx context.Context, input ast.Value, now time.Time) (message string, err error) {
	if c.message == nil {
		return "", nil
	}
	t, err := c.message.evaluateQuery(ctx, input, now, 0)
	if errors.Is(err, errUndefined) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	s, ok := t.Value.(ast.String)
	if !ok {
		return "", fmt.Errorf("got %s, want a string", ast.ValueName(t.Value))
	}
	return truncateText(string(s), maxMessageText), nil
}

func compileConditionModule(ctx context.Context, module string, shape *inputShape) (c *Condition, err error) {
	defer recoverPanicAsError(&err)
	if len(module) > maxConditionBytes {
		return nil, fmt.Errorf("the module has %d bytes, at most %d are allowed", len(module), maxConditionBytes)
	}
	const name = "condition"
	caps := newConditionCapabilities()
	modules, err := parseModules(map[string]string{name: module}, caps)
	if err != nil {
		return nil, err
	}
	path := modules[name].Package.Path
	compiler := newCompiler(caps, shape).WithStrict(false)
	if compiler.Compile(modules); compiler.Failed() {
		return nil, shortenCompileErrors(compiler.Errors)
	}
	has := func(rule string) (string, bool) {
		ref := path.Append(ast.StringTerm(rule))
		return ref.String(), len(compiler.GetRulesExact(ref)) > 0
	}
	allow, ok := has("allow")
	if !ok {
		return nil, fmt.Errorf("package %s has no rule allow", path)
	}
	c = &Condition{shape: shape, unseen: shape.FindTargetObjectIfUnreferenced(compiler)}
	if c.allow, err = prepareQuery(ctx, compiler, allow); err != nil {
		return nil, err
	}
	if message, ok := has("message"); ok {
		c.message, err = prepareQuery(ctx, compiler, message)
	}
	return c, err
}
