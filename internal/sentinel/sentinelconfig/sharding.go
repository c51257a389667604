package sentinelconfig

import (
	"cmp"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
)

// maxParts limits the number of parts, as the schema does.
const maxParts = 1024

func (t *translation) translateSharding(s *v1alpha1.Sharding) Sharding {
	if s == nil {
		return Sharding{}
	}
	const field = "spec.sharding"
	mode := requireOneOf(t, field+".mode", cmp.Or(s.Mode, v1alpha1.ShardingStatic), v1alpha1.ShardingStatic, v1alpha1.ShardingAuto)
	switch mode {
	case v1alpha1.ShardingAuto:
		if s.Count != nil || s.Index != nil {
			t.addFieldErrorf(field, "count and index must not be set for the mode auto")
		}
		return Sharding{Mode: mode}
	case v1alpha1.ShardingStatic:
		switch {
		case s.Count == nil || s.Index == nil:
			t.addFieldErrorf(field, "count and index are required for the mode static")
		case *s.Count < 1 || *s.Count > maxParts:
			t.addFieldErrorf(field+".count", "%d is invalid: must be between 1 and %d", *s.Count, maxParts)
		case *s.Index < 0 || *s.Index >= *s.Count:
			t.addFieldErrorf(field+".index", "%d is invalid: must be between 0 and %d", *s.Index, *s.Count-1)
		default:
			return Sharding{Mode: mode, Count: int(*s.Count), Index: int(*s.Index)}
		}
	}
	return Sharding{}
}
