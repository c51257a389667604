// Package admission holds the CustomResourceDefinition of SentinelConfig
// against the specification, and against a real API server: what it refuses
// and in which words, what it fills in, and what users see by kubectl. What
// the API server refuses, package sentinelconfig refuses too.
package admission
