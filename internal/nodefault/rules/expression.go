package rules

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/ext"
	corev1 "k8s.io/api/core/v1"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
)

// costLimit limits the cost of one evaluation in units of CEL, and the estimated worst
// case. A typical rule costs some tens.
const costLimit = 100_000

// The variables of expressions. Their names contain dots: there is no variable fault, so
// no field of it can be missing.
const (
	varSource         = "fault.source"
	varCheck          = "fault.check"
	varEntity         = "fault.entity"
	varComponentClass = "fault.componentClass"
	varErrorCodes     = "fault.errorCodes"
	varFatal          = "fault.fatal"
	varMessage        = "fault.message"
	varAction         = "fault.recommendedAction"
	varAgeSeconds     = "fault.ageSeconds"

	varNodeName    = "node.name"
	varLabels      = "node.labels"
	varAnnotations = "node.annotations"
	varTaints      = "node.taints"
	varReady       = "node.ready"
)

// celVariables returns the variables of expressions with their types.
func celVariables() map[string]*cel.Type {
	texts := cel.MapType(cel.StringType, cel.StringType)
	return map[string]*cel.Type{
		varSource:         cel.StringType,
		varCheck:          cel.StringType,
		varEntity:         cel.StringType,
		varComponentClass: cel.StringType,
		varErrorCodes:     cel.ListType(cel.StringType),
		varFatal:          cel.BoolType,
		varMessage:        cel.StringType,
		varAction:         cel.StringType,
		varAgeSeconds:     cel.IntType,

		varNodeName:    cel.StringType,
		varLabels:      texts,
		varAnnotations: texts,
		varTaints:      cel.ListType(texts),
		varReady:       cel.BoolType,
	}
}

// variableSizeEstimator estimates the sizes of the variables.
type variableSizeEstimator struct{}

// EstimateSize limits the size of a variable and its elements.
func (variableSizeEstimator) EstimateSize(element checker.AstNode) *checker.SizeEstimate {
	const text, short, many = 1024, 256, 256
	path := strings.Join(element.Path(), ".")
	most := uint64(short)
	switch {
	case path == varMessage, strings.HasPrefix(path, varAnnotations+"."):
		most = text
	case path == varLabels, path == varAnnotations:
		most = many
	case path == varErrorCodes:
		most = 16
	case path == varTaints:
		most = 64
	}
	return &checker.SizeEstimate{Min: 0, Max: most}
}

// EstimateCallCost uses the estimates of CEL.
func (variableSizeEstimator) EstimateCallCost(
	string, string, *checker.AstNode, []checker.AstNode,
) *checker.CallEstimate {
	return nil
}

type celEnvironment struct{ env *cel.Env }

func newCELEnvironment() (*celEnvironment, error) {
	opts := []cel.EnvOption{
		ext.Strings(),
		cel.ClearMacros(),
		cel.Macros(slices.Concat(
			[]cel.Macro{cel.GlobalMacro("has", 1, expandHasOnLabelsOrAnnotations)},
			slices.DeleteFunc(slices.Clone(cel.StandardMacros), func(m cel.Macro) bool { return m.Function() == "has" }),
		)...),
	}
	for name, typ := range celVariables() {
		opts = append(opts, cel.Variable(name, typ))
	}
	env, err := cel.NewEnv(opts...)
	if err != nil {
		return nil, fmt.Errorf("create CEL environment: %w", err)
	}
	return &celEnvironment{env: env}, nil
}

// expandHasOnLabelsOrAnnotations makes has(node.labels.a) check whether the label exists. All other fields
// always exist, so has is an error for them.
func expandHasOnLabelsOrAnnotations(f cel.MacroExprFactory, _ ast.Expr, args []ast.Expr) (ast.Expr, *common.Error) {
	if args[0].Kind() == ast.SelectKind {
		of := args[0].AsSelect().Operand()
		if path := dottedPath(of); path == varLabels || path == varAnnotations {
			return f.NewCall(operators.In, f.NewLiteral(types.String(args[0].AsSelect().FieldName())), of), nil
		}
	}
	return nil, f.NewError(args[0].ID(), "has() works only on labels and annotations: all other fields always exist")
}

// dottedPath returns a.b for the expression a.b, and "" for other expressions.
func dottedPath(e ast.Expr) string {
	switch e.Kind() {
	case ast.IdentKind:
		return e.AsIdent()
	case ast.SelectKind:
		if of := dottedPath(e.AsSelect().Operand()); of != "" {
			return of + "." + e.AsSelect().FieldName()
		}
	case ast.UnspecifiedExprKind, ast.CallKind, ast.ComprehensionKind, ast.ListKind, ast.LiteralKind, ast.MapKind, ast.StructKind:
	}
	return ""
}

// A program is a compiled expression.
type program struct{ prg cel.Program }

func (e *celEnvironment) compileBoolExpr(expr string) (program, error) {
	checked, issues := e.env.Compile(expr)
	if issues.Err() != nil {
		var errs []error
		for _, issue := range issues.Errors() {
			line, column := issue.Location.Line(), issue.Location.Column()
			errs = append(errs, fmt.Errorf("line %d, column %d: %s", line, column+1, explainUndeclaredPath(issue.Message, expr, line, column)))
		}
		return program{}, errors.Join(errs...)
	}
	if !checked.OutputType().IsExactType(cel.BoolType) {
		return program{}, fmt.Errorf("line 1, column 1: the expression returns %s, want bool", checked.OutputType())
	}
	cost, err := e.env.EstimateCost(checked, variableSizeEstimator{})
	if err != nil {
		return program{}, fmt.Errorf("line 1, column 1: estimate cost: %w", err)
	}
	if cost.Max > costLimit {
		return program{}, fmt.Errorf("line 1, column 1: the estimated cost %d exceeds the limit %d: use fewer nested loops", cost.Max, costLimit)
	}
	prg, err := e.env.Program(checked, cel.CostLimit(costLimit), cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		return program{}, fmt.Errorf("line 1, column 1: %w", err)
	}
	return program{prg: prg}, nil
}

// explainUndeclaredPath replaces an error about an unknown identifier with one about its whole
// path, and adds a suggestion.
func explainUndeclaredPath(message, expr string, line, column int) string {
	if !strings.HasPrefix(message, "undeclared reference to '") {
		return message
	}
	lines := strings.Split(expr, "\n")
	if line < 1 || line > len(lines) {
		return message
	}
	runes := []rune(lines[line-1])
	if column < 0 || column > len(runes) {
		return message
	}
	at := string(runes[column:])
	known := slices.Sorted(maps.Keys(celVariables()))
	path := regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\s*\.\s*[A-Za-z_][A-Za-z0-9_]*)*`).FindString(at)
	root, field, dotted := strings.Cut(path, ".")
	field, _, _ = strings.Cut(field, ".")
	if dotted {
		path = strings.TrimSpace(root) + "." + strings.TrimSpace(field)
	}
	if path == "" {
		return message
	}
	return fmt.Sprintf("undeclared reference to '%s'%s", path, didYouMeanSuffix(path, known))
}

// evalMatch reports whether a fault matches. dependsOnAge reports whether this depends on the
// age of the fault, so that the result may change without an event.
func (p program) evalMatch(vars map[string]any) (matches, dependsOnAge bool, err error) {
	seen := &variableRecorder{vars: vars}
	out, _, err := p.prg.Eval(seen)
	if err != nil {
		return false, seen.age, err
	}
	yes, ok := out.(types.Bool)
	if !ok {
		return false, seen.age, fmt.Errorf("the expression returns %s, want bool", out.Type().TypeName())
	}
	return bool(yes), seen.age, nil
}

// A variableRecorder records the variables that an evaluation reads.
type variableRecorder struct {
	vars map[string]any
	age  bool
}

// ResolveName returns the value of a variable.
func (r *variableRecorder) ResolveName(name string) (value any, found bool) {
	r.age = r.age || name == varAgeSeconds
	v, found := r.vars[name]
	return v, found
}

// Parent returns nil.
func (r *variableRecorder) Parent() cel.Activation { return nil }

// A nodeVariables holds the node's variables.
type nodeVariables map[string]any

func newNodeVariables(node *corev1.Node) nodeVariables {
	taints := make([]map[string]string, 0, len(node.Spec.Taints))
	for _, t := range node.Spec.Taints {
		taints = append(taints, map[string]string{"key": t.Key, "value": t.Value, "effect": string(t.Effect)})
	}
	return nodeVariables{
		varNodeName: node.Name, varReady: isReady(node), varTaints: taints,
		varLabels: newEmptyDefaultMap(node.Labels), varAnnotations: newEmptyDefaultMap(node.Annotations),
	}
}

func isReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func (s nodeVariables) withFault(f *v1alpha1.Fault, age time.Duration) map[string]any {
	vars := maps.Clone(s)
	vars[varSource], vars[varCheck], vars[varEntity] = f.Source, f.Check, f.Entity
	vars[varComponentClass], vars[varErrorCodes], vars[varFatal] = f.ComponentClass, f.ErrorCodes, f.Fatal
	vars[varMessage], vars[varAction], vars[varAgeSeconds] = f.Message, string(f.RecommendedAction), int64(age/time.Second)
	return vars
}

// emptyDefaultMap is a map in which a missing key has an empty value, so that rules need no guards.
// A rule that fails would prevent the release of a node.
type emptyDefaultMap struct{ traits.Mapper }

func newEmptyDefaultMap(m map[string]string) emptyDefaultMap {
	return emptyDefaultMap{types.NewStringStringMap(types.DefaultTypeAdapter, m)}
}

// Get returns the value of a key, or the empty string.
func (t emptyDefaultMap) Get(key ref.Val) ref.Val {
	v, _ := t.Find(key)
	return v
}

// Find returns the value of a key, or the empty string.
func (t emptyDefaultMap) Find(key ref.Val) (ref.Val, bool) {
	if v, found := t.Mapper.Find(key); found {
		return v, true
	}
	return types.String(""), true
}
