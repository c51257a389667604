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

func expandConditionMacro(f cel.MacroExprFactory, _ ast.Expr, args []ast.Expr) (ast.Expr, *common.Error) {
	return f.NewCall(conditionFunction, f.NewIdent(varResource), args[0]), nil
}

// findConditionOrEmpty returns the condition of a resource by its type. Missing fields are empty,
// and so are all fields of a missing condition, so that a rule needs no guards.
func findConditionOrEmpty(resource, conditionType ref.Val) ref.Val {
	found := map[string]any{
		"type": "", "status": "", "reason": "", "message": "",
		"observed_generation":  int64(0),
		"last_updated_time":    "",
		"last_transition_time": "",
	}
	for _, c := range listConditions(resource) {
		if c, ok := c.(map[string]any); ok && c["type"] == conditionType.Value() {
			maps.Copy(found, c)
			break
		}
	}
	return types.DefaultTypeAdapter.NativeToValue(found)
}

func listConditions(resource ref.Val) []any {
	r, _ := resource.Value().(map[string]any)
	status, _ := r["status"].(map[string]any)
	list, _ := status["conditions"].([]any)
	return list
}
