package policy

import (
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
)

// newPolicyCapabilities returns the capabilities of this version of Open Policy Agent. It omits
// functions that reach out of the process or are not deterministic. The time is the one exception:
// the caller sets it.
func newPolicyCapabilities() *ast.Capabilities {
	return newCapabilitiesWithout(func(b *ast.Builtin) bool {
		switch b.Name {
		case ast.NowNanos.Name:
			return false
		case "http.send", "net.lookup_ip_addr", "opa.runtime", "rego.parse_module", "trace", "rand.intn", "uuid.rfc4122",
			"json.match_schema", "json.verify_schema", // a schema can refer to another on the network
			"io.jwt.decode_verify": // it reads the clock
			return true
		}
		return b.Nondeterministic
	})
}

// newConditionCapabilities returns the capabilities of policies that conditions need. Other functions
// do not exist in a condition, even if a new version of Open Policy Agent adds some.
func newConditionCapabilities() *ast.Capabilities {
	all := newPolicyCapabilities()
	allowed := listConditionBuiltins()
	all.Builtins = slices.DeleteFunc(all.Builtins, func(b *ast.Builtin) bool { return !slices.Contains(allowed, b.Name) })
	return all
}

// listConditionBuiltins returns the built-in functions of conditions, by topic. The page about policies
// lists those that authors use.
func listConditionBuiltins() []string {
	return []string{
		"assign", "eq", "equal", "neq", "lt", "lte", "gt", "gte", "internal.member_2", "internal.member_3", // used by the syntax
		"plus", "minus", "mul", "div", "rem", "abs", "ceil", "floor", "round", // numbers
		"count", "sum", "max", "min", "sort", // of lists and sets
		"and", "or", "intersection", "union", "array.concat", "array.slice", "object.get", "object.keys", "object.subset",
		"is_array", "is_boolean", "is_null", "is_number", "is_object", "is_set", "is_string", "type_name",
		"concat", "contains", "endswith", "format_int", "lower", "replace", "split", "sprintf", "startswith", "substring", "trim", "trim_left", "trim_prefix", "trim_right", "trim_space", "trim_suffix", "upper",
		"glob.match", "regex.find_all_string_submatch_n", "regex.match", "regex.replace", "net.cidr_contains",
		"to_number", "units.parse", "units.parse_bytes", // quantities
		"time.now_ns", "time.parse_duration_ns", "time.parse_rfc3339_ns",
	}
}

func newCapabilitiesWithout(drop func(*ast.Builtin) bool) *ast.Capabilities {
	caps := ast.CapabilitiesForThisVersion()
	caps.Builtins = slices.DeleteFunc(caps.Builtins, drop)
	caps.AllowNet = []string{} // nil would mean any host
	// The features that existed when the policies were written: a new version of the syntax must be
	// enabled deliberately.
	caps.Features = []string{
		ast.FeatureRegoV1,
		ast.FeatureRegoV1Import,
		ast.FeatureRefHeads,
		ast.FeatureRefHeadStringPrefixes,
		ast.FeatureKeywordsInRefs,
	}
	caps.FutureKeywords = []string{"contains", "every", "if", "in"}
	return caps
}
