package decision

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
)

// An ExpressionParam names the value of an expression for later expressions.
type ExpressionParam struct {
	Name string `key:"name" doc:"Name of the value in later expressions." validate:"required"`
	Expr string `key:"expr" doc:"CEL expression. It can use resource, now, condition(type) and earlier params." validate:"required"`
}

// An ExpressionProfile decides by an expression of the user. It has the same method as a Profile.
// Its expressions see the resource and the time (see Expression), but no reason.
type ExpressionProfile struct {
	ages   Ages
	params []compiledParam
	result cel.Program
}

type compiledParam struct {
	name    string
	program cel.Program
}

// NewExpressionProfile compiles a profile: params in the given order, then the result, which must
// be a boolean. The error names every invalid expression, with line and column.
//
// Ages do not affect the decision. They are how long one event is valid, as in every
// profile.
func NewExpressionProfile(params []ExpressionParam, result string, ages Ages) (*ExpressionProfile, error) {
	env, err := newCELEnv()
	if err != nil {
		return nil, err
	}
	p := &ExpressionProfile{ages: ages}
	usedNames := map[string]bool{varResource: true, varNow: true}
	for _, param := range params {
		if usedNames[param.Name] {
			return nil, fmt.Errorf("compile param %q: the name is already in use", param.Name)
		}
		usedNames[param.Name] = true
		var program cel.Program
		program, env, err = compileParamAndExtendEnv(env, param)
		if err != nil {
			return nil, fmt.Errorf("compile param %q: %w", param.Name, err)
		}
		p.params = append(p.params, compiledParam{name: param.Name, program: program})
	}

	program, resultType, err := compileCEL(env, result)
	if err != nil {
		return nil, fmt.Errorf("compile result: %w", err)
	}
	// A value of type dyn has its type only when it is evaluated.
	if !resultType.IsExactType(cel.BoolType) && !resultType.IsExactType(cel.DynType) {
		return nil, fmt.Errorf("compile result: line 1, column 1: the expression has type %s, want bool", resultType)
	}
	p.result = program
	return p, nil
}

// compileParamAndExtendEnv compiles a param. In the returned environment, later expressions can use
// its value by its name.
func compileParamAndExtendEnv(env *cel.Env, param ExpressionParam) (program cel.Program, extended *cel.Env, err error) {
	program, valueType, err := compileCEL(env, param.Expr)
	if err != nil {
		return nil, nil, err
	}
	if !isCELIdentifier(env, param.Name) {
		return nil, nil, errors.New("the name is not a CEL identifier")
	}
	extended, err = env.Extend(cel.Variable(param.Name, valueType))
	if err != nil {
		return nil, nil, err
	}
	return program, extended, nil
}

// isCELIdentifier reports whether a name can be used in an expression.
func isCELIdentifier(env *cel.Env, name string) bool {
	parsed, issues := env.Parse(name)
	return issues.Err() == nil && parsed.NativeRep().Expr().AsIdent() == name
}

// Decide decides that r is due at now if the expression is true for it.
//
// If the evaluation fails, the resource counts as due and the verdict has the error: an unnecessary
// event costs an adapter one check, but a resource that a faulty rule hides is lost. DelayRepeat limits
// that to one event per interval. Next is unknown for a resource that is not due.
func (p *ExpressionProfile) Decide(r *Resource, now time.Time) Verdict {
	interval := p.ages.MaxAgeOf(r)
	since, dueSince := SubtractClockSkew(firstNonZeroTime(r.LastUpdated, r.Created), interval, now)
	due, err := p.evaluateDue(r, now)
	if err != nil {
		return Verdict{
			ShouldPublish: true,
			Reason:        ReasonExpressionFailed,
			Since:         since,
			Next:          dueSince,
			Interval:      interval,
			Err:           err,
		}
	}
	if !due {
		return Verdict{Reason: ReasonExpressionFalse, Since: since, Interval: interval}
	}
	return Verdict{
		ShouldPublish: true,
		Reason:        ReasonExpressionTrue,
		Since:         since,
		Next:          dueSince,
		Interval:      interval,
	}
}

// evaluateDue evaluates the params in order, and then the result. A failed param is an error only if
// the result needs it.
func (p *ExpressionProfile) evaluateDue(r *Resource, now time.Time) (due bool, err error) {
	resource, err := ParseObject(r.Raw, nil)
	if err != nil {
		return false, err
	}
	vars := map[string]any{varResource: resource, varNow: now}
	var errs []error
	for _, param := range p.params {
		value, err := evalOrErrorValue(param.program, vars)
		vars[param.name] = value
		if err != nil {
			errs = append(errs, fmt.Errorf("evaluate param %q: %w", param.name, err))
		}
	}
	value, err := evalOrErrorValue(p.result, vars)
	if err != nil {
		// The error of the failed param is more precise than that of the result that needs it.
		errs = append(errs, fmt.Errorf("evaluate result: %w", err))
		return false, errors.Join(errs...)
	}
	result, ok := value.(types.Bool)
	if !ok {
		return false, fmt.Errorf("evaluate result: the value has type %s, want bool", value.Type().TypeName())
	}
	return bool(result), nil
}
