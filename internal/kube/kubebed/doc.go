// Package kubebed starts a Kubernetes control plane of its own: a real
// kube-apiserver with etcd, and where asked for the real controllers and the
// scheduler. Tests use it, by way of kubebedtest, and so does the all-in-one.
//
// It needs no rights and no installation: its programs come from the cache
// folder of package programs. Role-based access control and the default
// admission plugins are on, as in a cluster of the world outside. Everything
// listens on one port of the loopback address, and etcd on a socket file.
//
// A bed ends with Stop. On Linux its programs also die with this process,
// however that ends; elsewhere a process that is killed leaves them behind.
package kubebed
