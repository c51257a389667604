// Package admission tests the CustomResourceDefinition of SentinelConfig against the specification
// and a real API server: the rejected specs and their messages, the defaults, and the output of
// kubectl. Package sentinelconfig rejects every spec that the API server rejects.
package admission
