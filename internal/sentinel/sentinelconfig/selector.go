package sentinelconfig

import (
	"fmt"
	"maps"
	"slices"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/selector"
)

func (t *translation) translateMatchLabels(labels map[string]string) []selector.Pair {
	var pairs []selector.Pair
	for _, label := range slices.Sorted(maps.Keys(labels)) {
		pair := selector.Pair{Label: label, Value: labels[label]}
		if _, err := selector.FromPairs([]selector.Pair{pair}); err != nil {
			t.addFieldErrorf("spec.shardSelector.matchLabels", "%w", err)
			continue
		}
		pairs = append(pairs, pair)
	}
	return pairs
}

// translateMatchExpressions returns the expressions as the text of a selector.
func (t *translation) translateMatchExpressions(list []v1alpha1.LabelExpression) (selectorText string) {
	var reqs []selector.Requirement
	for i, e := range list {
		field := fmt.Sprintf("spec.shardSelector.matchExpressions[%d]", i)
		op, ok := map[string]selector.Op{
			"In": selector.In, "NotIn": selector.NotIn, "Exists": selector.Exists, "DoesNotExist": selector.NotExists,
		}[e.Operator]
		if !ok {
			t.addFieldErrorf(field+".operator", "%q is invalid: must be In, NotIn, Exists or DoesNotExist", e.Operator)
			continue
		}
		r := selector.Requirement{Key: e.Key, Op: op, Values: e.Values}
		if _, err := selector.New(r); err != nil {
			t.addFieldErrorf(field, "%w", err)
			continue
		}
		reqs = append(reqs, r)
	}
	sel, err := selector.New(reqs...)
	if err != nil {
		t.addFieldErrorf("spec.shardSelector.matchExpressions", "%w", err)
	}
	return sel.String()
}
