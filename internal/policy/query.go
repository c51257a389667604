package policy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/topdown"
)

var (
	errUndefined = errors.New("undefined: no rule gives it a value for this input")
	errDeadline  = errors.New("evaluation timed out")
	errStopped   = errors.New("evaluation was stopped")
)

// A query selects one document of compiled modules.
type query struct{ prepared rego.PreparedEvalQuery }

func prepareQuery(ctx context.Context, c *ast.Compiler, path string) (q *query, err error) {
	defer recoverError(&err)
	prepared, err := rego.New(
		rego.Compiler(c),
		rego.Query(path),
		rego.StrictBuiltinErrors(true), // otherwise a rule that denies would be silent if a function fails
		rego.GenerateJSON(func(t *ast.Term, _ *rego.EvalContext) (any, error) { return t, nil }),
	).PrepareForEval(ctx)
	if err != nil {
		return nil, shortenErrors(err)
	}
	return &query{prepared: prepared}, nil
}

// evaluateQuery returns the document for an input. now is the result of
// time.now_ns. timeout limits the query; zero means that only ctx limits it.
func (q *query) evaluateQuery(ctx context.Context, input ast.Value, now time.Time, timeout time.Duration) (t *ast.Term, err error) {
	defer recoverError(&err)
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%w: %w", errStopped, context.Cause(ctx))
	}
	// Timers replace the goroutine that Open Policy Agent would start: decisions are short and
	// rarely stopped.
	cancel := topdown.NewCancel()
	if timeout > 0 {
		timer := time.AfterFunc(timeout, cancel.Cancel)
		defer timer.Stop()
	}
	defer context.AfterFunc(ctx, cancel.Cancel)()

	rs, err := q.prepared.Eval(ctx, rego.EvalParsedInput(input), rego.EvalTime(now), rego.EvalExternalCancel(cancel))
	switch {
	case topdown.IsCancel(err) && ctx.Err() != nil:
		return nil, fmt.Errorf("%w: %w", errStopped, context.Cause(ctx))
	case topdown.IsCancel(err):
		return nil, fmt.Errorf("%w after %s", errDeadline, timeout)
	case err != nil:
		return nil, err
	case len(rs) == 0:
		return nil, errUndefined
	case len(rs) > 1 || len(rs[0].Expressions) != 1:
		return nil, errors.New("the result has more than one value")
	}
	t, ok := rs[0].Expressions[0].Value.(*ast.Term)
	if !ok {
		return nil, errors.New("the result is not a document")
	}
	return t, nil
}

// recoverError converts a panic into an error: no text in a cluster's objects may end the process.
func recoverError(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("panic in Open Policy Agent: %v", p)
	}
}
