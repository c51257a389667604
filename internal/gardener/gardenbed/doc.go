// Package gardenbed starts a garden of its own: the real API server of Gardener
// behind a control plane of kubebed, with what a Shoot needs in order to be
// accepted. Tests use it, by way of gardenbedtest.
package gardenbed
