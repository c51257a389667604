package decision

import (
	"maps"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
)

// conditionFunction cannot be written in an expression; only the macro calls it.
const conditionFunction = "@condition"

// expandConditionMacro expands condition(type) to a call with the resource and the type.
func expandConditionMacro(f cel.MacroExprFactory, _ ast.Expr, args []ast.Expr) (ast.Expr, *common.Error) {
	return f.NewCall(conditionFunction, f.NewIdent(varResource), args[0]), nil
}

// findConditionOrEmpty returns the condition of a resource by its type. Missing fields are empty,
// and so are all fields of a missing condition, so that a rule needs no guards.
func findConditionOrEmpty(resource, conditionType ref.Val) ref.Val {
	found := map[string]any{
		"type":                 "",
		"status":               "",
		"reason":               "",
		"message":              "",
		"observed_generation":  int64(0),
		"last_updated_time":    "",
		"last_transition_time": "",
	}
	for _, element := range listConditions(resource) {
		condition, ok := element.(map[string]any)
		if ok && condition["type"] == conditionType.Value() {
			maps.Copy(found, condition)
			break
		}
	}
	return types.DefaultTypeAdapter.NativeToValue(found)
}

// listConditions returns status.conditions of a resource, or nil if it has another form.
func listConditions(resource ref.Val) []any {
	r, _ := resource.Value().(map[string]any)
	status, _ := r["status"].(map[string]any)
	list, _ := status["conditions"].([]any)
	return list
}
