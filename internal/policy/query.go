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

// A preparedQuery selects one document of compiled modules.
type preparedQuery struct{ prepared rego.PreparedEvalQuery }

func prepareQuery(ctx context.Context, compiler *ast.Compiler, documentPath string) (q *preparedQuery, err error) {
	defer recoverPanicAsError(&err)
	prepared, err := rego.New(
		rego.Compiler(compiler),
		rego.Query(documentPath),
		rego.StrictBuiltinErrors(true), // otherwise a rule that denies would be silent if a function fails
		rego.GenerateJSON(func(t *ast.Term, _ *rego.EvalContext) (any, error) { return t, nil }),
	).PrepareForEval(ctx)
	if err != nil {
		return nil, shortenCompileErrors(err)
	}
	return &preparedQuery{prepared: prepared}, nil
}

// evaluateQuery returns the document for an input. now is the result of
// time.now_ns. timeout limits the query; zero means that only ctx limits it.
func (q *preparedQuery) evaluateQuery(
	ctx context.Context, input ast.Value, now time.Time, timeout time.Duration,
) (document *ast.Term, err error) {
	defer recoverPanicAsError(&err)
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
	document, ok := rs[0].Expressions[0].Value.(*ast.Term)
	if !ok {
		return nil, errors.New("the result is not a document")
	}
	return document, nil
}

// recoverPanicAsError converts a panic into an error: no text in a cluster's objects may end the process.
func recoverPanicAsError(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("panic in Open Policy Agent: %v", p)
	}
}
