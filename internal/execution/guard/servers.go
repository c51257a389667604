package guard

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"net/url"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// serverTimeout limits the trial at one of several API servers.
const serverTimeout = 3 * time.Second

var errServerTimeout = fmt.Errorf("the API server did not answer within %s", serverTimeout)

// ServerSlice is the EndpointSlice in namespace default that lists the addresses of a cluster's API
// servers.
const ServerSlice = "kubernetes"

// apiServers holds clients for the API servers of a cluster. Each server has its own view of the
// admission policies.
type apiServers struct {
	cfg        *rest.Config
	namespace  string
	client     kubernetes.Interface
	executions dynamic.ResourceInterface // at the configured address

	mu    sync.Mutex
	known map[string]dynamic.ResourceInterface // by address
}

func newAPIServers(cfg *rest.Config, client kubernetes.Interface, namespace string) (*apiServers, error) {
	s := &apiServers{cfg: cfg, namespace: namespace, client: client}
	var err error
	s.executions, err = newExecutionsClient(cfg, namespace)
	return s, err
}

func newExecutionsClient(cfg *rest.Config, namespace string) (dynamic.ResourceInterface, error) {
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	return client.Resource(v1alpha1.GroupVersion.WithResource(v1alpha1.Resource)).Namespace(namespace), nil
}

// connectListedServers returns a client for each listed API server, by address. It returns none if the list
// may not be read, or if a server could not prove its identity.
func (s *apiServers) connectListedServers(ctx context.Context) (map[string]dynamic.ResourceInterface, error) {
	name, ok := s.tlsServerName()
	if !ok {
		return nil, nil
	}
	slice, err := s.client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Get(ctx, ServerSlice, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, unknownError{fmt.Errorf("read EndpointSlice %s/%s, which lists the API servers: %w",
			metav1.NamespaceDefault, ServerSlice, err)}
	}
	addresses := map[string]bool{}
	for _, port := range slice.Ports {
		isHTTPS := port.Name != nil && *port.Name == "https"
		if !isHTTPS || port.Port == nil {
			continue
		}
		for _, e := range slice.Endpoints {
			for _, a := range e.Addresses {
				addresses[net.JoinHostPort(a, strconv.Itoa(int(*port.Port)))] = true
			}
		}
	}
	return s.connectAndCacheServers(name, addresses)
}

// connectAndCacheServers keeps exactly one client for each address.
func (s *apiServers) connectAndCacheServers(serverName string, addresses map[string]bool) (map[string]dynamic.ResourceInterface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	current := map[string]dynamic.ResourceInterface{}
	for a := range addresses {
		client, ok := s.known[a]
		if !ok {
			cfg := rest.CopyConfig(s.cfg)
			cfg.Host, cfg.ServerName, cfg.RateLimiter = "https://"+a, serverName, nil
			var err error
			client, err = newExecutionsClient(cfg, s.namespace)
			if err != nil {
				return nil, fmt.Errorf("connect to API server %s: %w", a, err)
			}
		}
		current[a] = client
	}
	s.known = current
	return maps.Clone(current), nil
}

// tlsServerName returns the name in the certificates of the API servers, independent of their
// address. Credentials are sent only to servers that prove this name.
func (s *apiServers) tlsServerName() (name string, secure bool) {
	if s.cfg.Insecure || s.cfg.Transport != nil {
		return "", false
	}
	host, err := url.Parse(s.cfg.Host)
	if err != nil || host.Scheme != "https" {
		return "", false
	}
	return cmp.Or(s.cfg.ServerName, host.Hostname()), true
}
