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

// requiredFields are the required values of a provider's Shoots. They are checked here because
// the extensions report them late or in other terms.
type requiredFields struct {
	infrastructure, nodes, volume, zones bool
}

func requiredFieldsOf(provider string) requiredFields {
	switch provider {
	case providerAWS:
		return requiredFields{infrastructure: true, nodes: true, volume: true, zones: true}
	case providerMetal:
		return requiredFields{infrastructure: true}
	default:
		return requiredFields{}
	}
}
