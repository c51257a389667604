package adapterapp

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/ext"

	"github.com/fleetloop/fleetloop/internal/settings"
)

// costLimit limits the cost of one evaluation, in units of CEL. An ordinary expression costs some
// tens.
const costLimit = 100_000

// maxValue limits the value of one expression, in bytes.
const maxValue = 1 << 20

const (
	expressionPrefix = "cel:"
	secretPrefix     = "secrets."
	varResult        = "result"
)

var errValueTooLong = fmt.Errorf("the value exceeds %d bytes", maxValue)

// A value yields a value of JSON: nil, a bool, int64, float64, string, []any or map[string]any.
type value func(*scope) (any, error)

// A compiler compiles the expressions of a file. It collects the errors, each with its position.
type compiler struct {
	report *settings.Report
	errs   []error

	// Which variables an expression has depends on where its value goes.
	resource, secret, result *cel.Env
}

func newCompiler(report *settings.Report, secrets map[string]Secret) (*compiler, error) {
	texts, object := cel.MapType(cel.StringType, cel.StringType), cel.MapType(cel.StringType, cel.DynType)
	resource, err := cel.NewEnv(
		ext.Strings(), ext.Encoders(),
		cel.Variable("id", cel.StringType), cel.Variable("name", cel.StringType), cel.Variable("kind", cel.StringType),
		cel.Variable("spec", object), cel.Variable("status", object), cel.Variable("labels", texts),
		cel.Variable("generation", cel.IntType), cel.Variable("deleted", cel.BoolType),
		cel.Variable("available", cel.ListType(cel.StringType)), cel.Variable("reports", object), cel.Variable("resource", object),
	)
	if err != nil {
		return nil, fmt.Errorf("create CEL environment: %w", err)
	}
	c := &compiler{report: report, resource: resource}
	var declared []cel.EnvOption
	for name := range secrets {
		declared = append(declared, cel.Variable(secretPrefix+name, cel.StringType))
	}
	if c.secret, err = resource.Extend(declared...); err == nil {
		c.result, err = resource.Extend(cel.Variable(varResult, object))
	}
	if err != nil {
		return nil, fmt.Errorf("create CEL environment: %w", err)
	}
	return c, nil
}

// recordError records an error of a key.
func (c *compiler) recordError(key string, err error) {
	c.errs = append(c.errs, c.report.WrapWithOrigin(key, err))
}

// compileExpression compiles an expression.
func (c *compiler) compileExpression(key, text string, env *cel.Env) (value, *cel.Type) {
	checked, issues := env.Compile(text)
	if issues.Err() != nil {
		for _, e := range issues.Errors() { // CEL counts columns from 0
			c.recordError(key, fmt.Errorf("expression: line %d, column %d: %s", e.Location.Line(), e.Location.Column()+1, e.Message))
		}
		return nil, cel.DynType
	}
	prg, err := env.Program(checked, cel.CostLimit(costLimit), cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		c.recordError(key, fmt.Errorf("expression: %w", err))
		return nil, cel.DynType
	}
	return func(s *scope) (any, error) {
		v, _, err := prg.Eval(s)
		if s.secretErr != nil {
			return nil, s.secretErr
		}
		budget := maxValue
		var out any
		if err == nil {
			out, err = toJSONValue(v, &budget)
		}
		if err != nil {
			return nil, fmt.Errorf("evaluate %s: %w", key, err)
		}
		return out, nil
	}, checked.OutputType()
}

// compileCondition compiles an expression with the result true or false. An empty one is the fallback.
func (c *compiler) compileCondition(key, text, fallback string, env *cel.Env) func(*scope) (bool, error) {
	if text == "" {
		text = fallback
	}
	v, t := c.compileExpression(key, strings.TrimPrefix(text, expressionPrefix), env)
	if !t.IsAssignableType(cel.BoolType) {
		c.recordError(key, fmt.Errorf("expression: the value is a %s; it must be true or false", t))
	}
	return func(s *scope) (bool, error) {
		got, err := v(s)
		if err != nil {
			return false, err
		}
		is, ok := got.(bool)
		if !ok {
			return false, fmt.Errorf("evaluate %s: the value must be true or false", key)
		}
		return is, nil
	}
}

// compileTree compiles a value of the file: each text in it is a text or an expression.
func (c *compiler) compileTree(key string, v any, env *cel.Env) value {
	switch v := v.(type) {
	case string:
		if text, ok := strings.CutPrefix(v, expressionPrefix); ok {
			out, _ := c.compileExpression(key, text, env)
			return out
		}
	case []any:
		items := make([]value, len(v))
		for i := range v {
			items[i] = c.compileTree(key+"["+strconv.Itoa(i)+"]", v[i], env)
		}
		return func(s *scope) (any, error) { return s.evaluateList(items) }
	case map[string]any:
		fields := make(map[string]value, len(v))
		for name := range v {
			fields[name] = c.compileTree(key+"."+name, v[name], env)
		}
		return func(s *scope) (any, error) { return s.evaluateMap(fields) }
	}
	return func(*scope) (any, error) { return v, nil }
}

func (s *scope) evaluateList(items []value) (_ any, err error) {
	out := make([]any, len(items))
	for i, item := range items {
		if out[i], err = item(s); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (s *scope) evaluateMap(fields map[string]value) (_ any, err error) {
	out := make(map[string]any, len(fields))
	for name, field := range fields {
		if out[name], err = field(s); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// compileText compiles a text or an expression. Numbers and truth values become texts; lists, maps and null
// are errors.
func (c *compiler) compileText(key, text string, env *cel.Env) func(*scope) (string, error) {
	v := c.compileTree(key, text, env)
	return func(s *scope) (string, error) {
		got, err := v(s)
		if err != nil {
			return "", err
		}
		switch got := got.(type) {
		case nil, []any, map[string]any:
			return "", fmt.Errorf("evaluate %s: the value must be a text, a number, or true or false", key)
		case float64:
			return strconv.FormatFloat(got, 'f', -1, 64), nil
		}
		return fmt.Sprint(got), nil
	}
}

// compileTexts compiles a map of texts or expressions. Its keys in the file are key[name].
func (c *compiler) compileTexts(key string, texts map[string]string, env *cel.Env) func(*scope) (map[string]string, error) {
	values := make(map[string]func(*scope) (string, error), len(texts))
	for name, text := range texts {
		values[name] = c.compileText(key+"["+name+"]", text, env)
	}
	return func(s *scope) (map[string]string, error) {
		out := make(map[string]string, len(values))
		for name, v := range values {
			var err error
			if out[name], err = v(s); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
}

// toJSONValue returns a value of CEL as one of JSON. It fails when the size exceeds the budget,
// because a short expression can repeat a large text.
func toJSONValue(v ref.Val, remainingBytes *int) (any, error) {
	*remainingBytes -= 8
	switch text := v.(type) {
	case types.String:
		*remainingBytes -= len(text)
	case types.Bytes:
		*remainingBytes -= len(text)
	}
	if *remainingBytes < 0 {
		return nil, errValueTooLong
	}
	switch v := v.(type) {
	case types.Null:
		return nil, nil //nolint:nilnil // null is a value
	case types.Bool:
		return bool(v), nil
	case types.Int:
		return int64(v), nil
	case types.Uint, types.Double:
		return toJSONNumber(v)
	case types.String:
		return string(v), nil
	case types.Bytes:
		return base64.StdEncoding.EncodeToString(v), nil
	case types.Timestamp:
		return v.UTC().Format(time.RFC3339Nano), nil
	case types.Duration:
		return v.String(), nil
	case traits.Mapper:
		return toJSONObject(v, remainingBytes)
	case traits.Lister:
		out := []any{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			item, err := toJSONValue(it.Next(), remainingBytes)
			if err != nil {
				return nil, err
			}
			out = append(out, item)
		}
		return out, nil
	}
	return nil, fmt.Errorf("a %s has no form in JSON", v.Type().TypeName())
}

// toJSONNumber returns a number that JSON and Kubernetes objects can have.
func toJSONNumber(v ref.Val) (any, error) {
	if n, ok := v.(types.Uint); ok {
		if n > math.MaxInt64 {
			return nil, fmt.Errorf("the integer %d is too large", uint64(n))
		}
		return int64(n), nil
	}
	f, _ := v.(types.Double)
	if math.IsNaN(float64(f)) || math.IsInf(float64(f), 0) {
		return nil, fmt.Errorf("JSON has no number %v", float64(f))
	}
	return float64(f), nil
}

func toJSONObject(m traits.Mapper, remainingBytes *int) (any, error) {
	out := map[string]any{}
	for it := m.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		name, ok := key.(types.String)
		if !ok {
			return nil, errors.New("the keys of a map must be texts")
		}
		*remainingBytes -= len(name)
		item, err := toJSONValue(m.Get(key), remainingBytes)
		if err != nil {
			return nil, err
		}
		out[string(name)] = item
	}
	return out, nil
}
