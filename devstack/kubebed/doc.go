// Package kubebed starts a Kubernetes control plane: a real kube-apiserver with etcd,
// and optionally the real controllers and the scheduler. Tests use it through
// kubebedtest, and so does the all-in-one.
//
// It requires no permissions and no installation: its programs come from the cache
// folder of package programs. Role-based access control and the default admission
// plugins are on, as in a production cluster. Everything listens on one port of the
// loopback address, and etcd on a socket file.
//
// A bed ends with Stop. On Linux its programs also die with this process, however that
// ends; elsewhere a killed process leaves them behind.
package kubebed
