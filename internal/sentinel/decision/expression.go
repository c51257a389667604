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
type Expression struct{ program cel.Program }

// CompileExpression compiles an expression for a payload. An error has the form "line 1, column 8:
// message".
func CompileExpression(expr string) (*Expression, error) {
	env, err := newCELEnv(cel.Variable(varReason, cel.StringType))
	if err != nil {
		return nil, err
	}
	program, _, err := compileCEL(env, expr)
	if err != nil {
		return nil, err
	}
	return &Expression{program: program}, nil
}

// AppendResultJSON appends the value of the expression to dst, as JSON. It fails soon after the value
// exceeds maxBytes.
func (x *Expression) AppendResultJSON(dst []byte, in ExpressionInput, maxBytes int) (extended []byte, err error) {
	value, _, err := x.program.Eval(map[string]any{
		varResource: in.Resource,
		varNow:      in.Now,
		varReason:   in.Reason,
	})
	if err != nil {
		return dst, err
	}
	return celEncoder{maxLength: len(dst) + maxBytes}.appendValueJSON(dst, value)
}

// newCELEnv returns an environment with the variables and functions that every expression may use,
// and with vars.
func newCELEnv(vars ...cel.EnvOption) (*cel.Env, error) {
	object := cel.MapType(cel.StringType, cel.DynType)
	// condition(name) reads the variable resource, which a function cannot access, so the macro
	// passes it.
	conditionMacro := cel.GlobalMacro("condition", 1, expandConditionMacro)
	conditionOverload := cel.Overload(
		"condition_of_map_string",
		[]*cel.Type{object, cel.StringType},
		object,
		cel.BinaryBinding(findConditionOrEmpty),
	)
	opts := append([]cel.EnvOption{
		cel.Variable(varResource, object),
		cel.Variable(varNow, cel.TimestampType),
		ext.Strings(),
		cel.Macros(append(cel.StandardMacros, conditionMacro)...),
		cel.Function(conditionFunction, conditionOverload),
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
			line, column := e.Location.Line(), e.Location.Column()+1 // CEL counts columns from 0
			errs = append(errs, fmt.Errorf("line %d, column %d: %s", line, column, e.Message))
		}
		return nil, nil, errors.Join(errs...)
	}
	program, err = env.Program(ast, cel.CostLimit(costLimit), cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		return nil, nil, fmt.Errorf("line 1, column 1: %w", err)
	}
	return program, ast.OutputType(), nil
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
