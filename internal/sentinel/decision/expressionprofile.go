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
	name string
	prg  cel.Program
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
	seen := map[string]bool{varResource: true, varNow: true}
	for _, in := range params {
		if seen[in.Name] {
			return nil, fmt.Errorf("compile param %q: the name is already in use", in.Name)
		}
		seen[in.Name] = true
		prg, typ, err := compileCEL(env, in.Expr)
		if err != nil {
			return nil, fmt.Errorf("compile param %q: %w", in.Name, err)
		}
		if !isCELIdentifier(env, in.Name) {
			return nil, fmt.Errorf("compile param %q: the name is not a CEL identifier", in.Name)
		}
		if env, err = env.Extend(cel.Variable(in.Name, typ)); err != nil {
			return nil, fmt.Errorf("compile param %q: %w", in.Name, err)
		}
		p.params = append(p.params, compiledParam{name: in.Name, prg: prg})
	}
	prg, typ, err := compileCEL(env, result)
	if err != nil {
		return nil, fmt.Errorf("compile result: %w", err)
	}
	if !typ.IsExactType(cel.BoolType) && !typ.IsExactType(cel.DynType) {
		return nil, fmt.Errorf("compile result: line 1, column 1: the expression has type %s, want bool", typ)
	}
	p.result = prg
	return p, nil
}

// isCELIdentifier reports whether a name can be used in an expression.
func isCELIdentifier(env *cel.Env, name string) bool {
	parsed, issues := env.Parse(name)
	return issues.Err() == nil && parsed.NativeRep().Expr().AsIdent() == name
}

// Decide reports whether the expression is true for r at now.
//
// If the evaluation fails, the resource counts as due and the verdict has the error: an unnecessary
// event costs an adapter one check, but a resource that a faulty rule hides is lost. DelayRepeat limits
// that to one event per interval. Next is unknown for a resource that is not due.
func (p *ExpressionProfile) Decide(r *Resource, now time.Time) Verdict {
	v := Verdict{Interval: p.ages.MaxAgeOf(r)}
	since := r.LastUpdated
	if since.IsZero() {
		since = r.Created
	}
	since, began := SubtractClockSkew(since, v.Interval, now)
	v.Since = since
	due, err := p.evaluateDue(r, now)
	switch {
	case err != nil:
		v.ShouldPublish, v.Reason, v.Next, v.Err = true, ReasonExpressionFailed, began, err
	case due:
		v.ShouldPublish, v.Reason, v.Next = true, ReasonExpressionTrue, began
	default:
		v.Reason = ReasonExpressionFalse
	}
	return v
}

func (p *ExpressionProfile) evaluateDue(r *Resource, now time.Time) (due bool, err error) {
	resource, err := ParseObject(r.Raw, nil)
	if err != nil {
		return false, err
	}
	vars := map[string]any{varResource: resource, varNow: now}
	var errs []error
	for _, in := range p.params {
		v, err := evalOrErrorValue(in.prg, vars)
		vars[in.name] = v
		if err != nil {
			errs = append(errs, fmt.Errorf("evaluate param %q: %w", in.name, err))
		}
	}
	v, err := evalOrErrorValue(p.result, vars)
	if err != nil {
		// The error of the failed param is more precise than that of the result that needs it.
		return false, errors.Join(append(errs, fmt.Errorf("evaluate result: %w", err))...)
	}
	result, ok := v.(types.Bool)
	if !ok {
		return false, fmt.Errorf("evaluate result: the value has type %s, want bool", v.Type().TypeName())
	}
	return bool(result), nil
}
