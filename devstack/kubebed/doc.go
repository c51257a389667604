// Package kubebed starts a Kubernetes control plane: a real kube-apiserver with etcd,
// and optionally the real controllers and the scheduler. Tests use it through
// kubebedtest, and so does the all-in-one.
//
// It requires no permissions and no installation. EnsureProgramFolder returns the folder in
// KUBEBUILDER_ASSETS, or else a cache folder that it fills once: by downloading the
// release, and where that fails by building it from Go modules, which takes minutes.
// EnsureGardenProgramFolder does the same for the API server of Gardener, which publishes only
// images, so that a build is the only way. The source of the build is in this package, so
// that it also works outside of a checkout; its hash is in the name of the folder. A folder
// appears complete or not at all. One process fills it while the others wait.
//
// Role-based access control and the default admission
// plugins are on, as in a production cluster. Everything listens on one port of the
// loopback address, and etcd on a socket file.
//
// A bed ends with Stop. On Linux its programs also die with this process, however that
// ends; elsewhere a killed process leaves them behind.
package kubebed
