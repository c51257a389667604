package decision

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"
)

// The variables of expressions.
const (
	varResource = "resource"
	varNow      = "now"
	varReason   = "reason"
)

// costLimit limits the cost of one evaluation, in CEL's units. An ordinary rule costs some tens;
// reaching the limit takes some milliseconds.
const costLimit = 100_000

// An ExpressionInput is the input of an evaluation. Resource is as ParseObject returns it.
type ExpressionInput struct {
	Resource map[string]any
	Now      time.Time
	Reason   string
}

// An Expression is a compiled CEL expression over a resource, for a value of the payload. It is
// safe for concurrent use.
//
// Like the expressions of an ExpressionProfile, it sees the whole resource as served (resource),
// the time of the decision (now, a timestamp), and also the reason for the event (reason).
// condition("Name") returns the resource's condition of that type, or one with empty fields if it
// is missing, as the public sentinel does. The cost of an evaluation is limited, so that no
// expression can block the loop.
type Expression struct{ prg cel.Program }

// CompileExpression compiles an expression for a payload. An error has the form "line 1, column 8:
// message".
func CompileExpression(expr string) (*Expression, error) {
	env, err := newCELEnv(cel.Variable(varReason, cel.StringType))
	if err != nil {
		return nil, err
	}
	prg, _, err := compileCEL(env, expr)
	if err != nil {
		return nil, err
	}
	return &Expression{prg: prg}, nil
}

// AppendResultJSON appends the value of the expression to dst, as JSON. It fails soon after the value
// exceeds maxBytes.
func (x *Expression) AppendResultJSON(dst []byte, in ExpressionInput, maxBytes int) (extended []byte, err error) {
	v, _, err := x.prg.Eval(map[string]any{varResource: in.Resource, varNow: in.Now, varReason: in.Reason})
	if err != nil {
		return dst, err
	}
	return celEncoder{most: len(dst) + maxBytes}.appendValueJSON(dst, v)
}

// newCELEnv returns the functions that every expression may use, with vars.
func newCELEnv(vars ...cel.EnvOption) (*cel.Env, error) {
	opts := append([]cel.EnvOption{
		cel.Variable(varResource, cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable(varNow, cel.TimestampType),
		ext.Strings(),
		// condition(name) reads the variable resource, which a function cannot access, so the macro
		// passes it.
		cel.Macros(append(cel.StandardMacros, cel.GlobalMacro("condition", 1, expandConditionMacro))...),
		cel.Function(conditionFunction, cel.Overload("condition_of_map_string",
			[]*cel.Type{cel.MapType(cel.StringType, cel.DynType), cel.StringType}, cel.MapType(cel.StringType, cel.DynType),
			cel.BinaryBinding(findConditionOrEmpty))),
	}, vars...)
	env, err := cel.NewEnv(opts...)
	if err != nil {
		return nil, fmt.Errorf("create CEL environment: %w", err)
	}
	return env, nil
}

// compileCEL returns the program of an expression and the type of its value.
func compileCEL(env *cel.Env, expr string) (program cel.Program, resultType *cel.Type, err error) {
	ast, issues := env.Compile(expr)
	if issues.Err() != nil {
		var errs []error
		for _, e := range issues.Errors() {
			// CEL counts columns from 0.
			errs = append(errs, fmt.Errorf("line %d, column %d: %s", e.Location.Line(), e.Location.Column()+1, e.Message))
		}
		return nil, nil, errors.Join(errs...)
	}
	prg, err := env.Program(ast, cel.CostLimit(costLimit), cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		return nil, nil, fmt.Errorf("line 1, column 1: %w", err)
	}
	return prg, ast.OutputType(), nil
}

// evalOrErrorValue evaluates a program to a value. An error becomes CEL's own error value, which is
// harmless if an expression does not need it.
func evalOrErrorValue(program cel.Program, vars map[string]any) (valueOrError ref.Val, err error) {
	v, _, err := program.Eval(vars)
	if err != nil {
		return types.WrapErr(err), err
	}
	return v, nil
}
