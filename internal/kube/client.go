package kube

import (
	"fmt"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// NewClient returns a client for the kinds of o, which reads directly from the host
// cluster. It sends no request yet.
func NewClient(cfg *rest.Config, o Options) (client.Client, error) {
	c, err := client.New(cfg, client.Options{Scheme: o.Scheme, Mapper: newRESTMapper(o.Namespaced, o.ClusterScoped)})
	if err != nil {
		return nil, fmt.Errorf("create Kubernetes client: %w", err)
	}
	return c, nil
}
