package manifest

// Providers with built-in knowledge. All others work as well: their required values
// come from the configuration, and Gardener reports missing ones.
const (
	providerLocal = "local"
	providerMetal = "metal"
	providerAWS   = "aws"
)

// annotationMetalTenant is an annotation that the admission of metal-stack's extension
// requires.
const annotationMetalTenant = "cluster.metal-stack.io/tenant"

// needs are the required values of a provider's Shoots. They are checked here because
// the extensions report them late or in other terms.
type needs struct {
	infrastructure, nodes, volume, zones bool
}

func needsOf(provider string) needs {
	switch provider {
	case providerAWS:
		return needs{infrastructure: true, nodes: true, volume: true, zones: true}
	case providerMetal:
		return needs{infrastructure: true}
	default:
		return needs{}
	}
}
