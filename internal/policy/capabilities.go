package policy

import (
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/fleetloop/fleetloop/internal/policy/bounds"
)

// policyCapabilities are those of this version of Open Policy Agent without
// what reaches out of the process, and without what answers differently when it
// is asked again. The time is the one exception: it is the one that the caller
// names.
func policyCapabilities() *ast.Capabilities {
	return without(func(b *ast.Builtin) bool {
		switch b.Name {
		case ast.NowNanos.Name:
			return false
		case "http.send", "net.lookup_ip_addr", "opa.runtime", "rego.parse_module", "trace", "rand.intn", "uuid.rfc4122",
			"json.match_schema", "json.verify_schema", // a schema can refer to another on the network
			"io.jwt.decode_verify": // it looks at the clock
			return true
		}
		return b.Nondeterministic
	})
}

// conditionCapabilities are those of policies without what makes much of
// little: one call can not be interrupted, and memory has no bound but this.
func conditionCapabilities() *ast.Capabilities {
	all := policyCapabilities()
	all.Builtins = slices.DeleteFunc(all.Builtins, func(b *ast.Builtin) bool { return bounds.Grows(b.Name) })
	all.Builtins = append(all.Builtins, bounds.Builtins()...)
	return all
}

func without(drop func(*ast.Builtin) bool) *ast.Capabilities {
	caps := ast.CapabilitiesForThisVersion()
	caps.Builtins = slices.DeleteFunc(caps.Builtins, drop)
	caps.AllowNet = []string{} // nil would be any host
	// What was there when the sets of today were written: a new version of the
	// syntax is let in with thought.
	caps.Features = []string{ast.FeatureRegoV1, ast.FeatureRegoV1Import, ast.FeatureRefHeads, ast.FeatureRefHeadStringPrefixes, ast.FeatureKeywordsInRefs}
	caps.FutureKeywords = []string{"contains", "every", "if", "in"}
	return caps
}
