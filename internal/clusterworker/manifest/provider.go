package manifest

// The providers that are known here. All others work, too: what they need
// comes from the configuration, and Gardener says what is missing.
const (
	providerLocal = "local"
	providerMetal = "metal"
	providerAWS   = "aws"
)

// annotationMetalTenant is what the admission of metal-stack's extension wants
// to know.
const annotationMetalTenant = "cluster.metal-stack.io/tenant"

// needs are what Shoots of a provider can not be without. It is said here,
// because the extensions say it late or in their own terms.
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
