package gardener

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Config is the configuration of the access to Gardener.
type Config struct {
	Kubeconfig string `key:"kubeconfig" env:"GARDENER_KUBECONFIG" flag:"gardener-kubeconfig" doc:"Path of the kubeconfig for the garden cluster."`
	Namespace  string `key:"namespace" env:"GARDENER_NAMESPACE" flag:"gardener-namespace" default:"garden-fundament" validate:"required" doc:"Namespace of the Gardener project that contains the Shoots."`

	QPS     float64       `key:"qps" env:"GARDENER_QPS" default:"50" validate:"gt=0" doc:"Maximum requests per second to Gardener."`
	Burst   int           `key:"burst" env:"GARDENER_BURST" default:"100" validate:"gt=0" doc:"Burst size of the request rate limit."`
	Timeout time.Duration `key:"timeout" env:"GARDENER_TIMEOUT" default:"60s" validate:"gt=0" doc:"Timeout of one request to Gardener. The Gardener API server limits requests to one minute."`

	// Silence is how long a watch may be silent before its connection counts as dead.
	// Gardener sends data about every minute.
	Silence time.Duration
}

// Defaults of zero fields of a Config.
const (
	DefaultQPS     = 50
	DefaultBurst   = 100
	DefaultTimeout = time.Minute
	DefaultSilence = 150 * time.Second
)

const (
	userAgent = "fleetloop-cluster-worker"
	pageSize  = 500
)

// A Client is the access of one installation to the Shoots of a project. Create it with
// New. It is safe for concurrent use.
type Client struct {
	ns           *shootNamespace
	writer       shootWriter
	installation string
	silence      time.Duration
}

// New returns a client for a kubeconfig. It sends no request. installationID is the id of
// the database whose clusters the Shoots belong to.
func New(cfg Config, installationID string) (*Client, error) {
	if cfg.Kubeconfig == "" {
		return nil, errors.New("connect to Gardener: GARDENER_KUBECONFIG is not set")
	}
	// Package kube would add the dependencies of operators.
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: cfg.Kubeconfig}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{})
	restConfig, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("connect to Gardener: read kubeconfig: %w", err)
	}
	return NewForConfig(restConfig, cfg, installationID)
}

// NewForConfig returns a client for a REST config. It sends no request, and does not
// change restConfig.
func NewForConfig(restConfig *rest.Config, cfg Config, installationID string) (*Client, error) {
	if cfg.Namespace == "" || installationID == "" {
		return nil, errors.New("connect to Gardener: namespace and installation id are required")
	}
	restConfig = rest.CopyConfig(restConfig)
	restConfig.UserAgent = cmp.Or(restConfig.UserAgent, userAgent)
	httpClient, err := rest.HTTPClientFor(restConfig)
	if err != nil {
		return nil, fmt.Errorf("connect to Gardener: %w", err)
	}
	httpClient.Timeout = 0 // a client timeout would end every watch; requests have their own
	base, _, err := rest.DefaultServerUrlFor(restConfig)
	if err != nil {
		return nil, fmt.Errorf("connect to Gardener: %w", err)
	}
	timeout := cmp.Or(cfg.Timeout, DefaultTimeout)
	qps, burst := cmp.Or(cfg.QPS, DefaultQPS), cmp.Or(cfg.Burst, DefaultBurst)
	ns := &shootNamespace{
		name: cfg.Namespace,
		api: &transport{
			http:         httpClient,
			base:         base,
			limiter:      rate.NewLimiter(rate.Limit(qps), burst),
			timeout:      timeout,
			timeoutCause: &noDataError{timeout},
		},
	}
	return &Client{
		ns:           ns,
		writer:       shootWriter{ns: ns, manager: fieldManagerName(installationID)},
		installation: installationID,
		silence:      cmp.Or(cfg.Silence, DefaultSilence),
	}, nil
}

// fieldManagerName returns the field manager of the installation.
func fieldManagerName(installationID string) string {
	const most = 8 // characters of a uuid, enough to distinguish installations
	return "fleetloop-" + installationID[:min(most, len(installationID))]
}

// Close closes idle connections.
func (c *Client) Close() { c.ns.api.http.CloseIdleConnections() }

// Probe reads a Shoot that cannot exist. The request takes the whole way to the storage
// of Shoots, and returns no data. It ignores the rate limit, and waits for the answer
// as long as ctx allows, as a late answer counts.
func (c *Client) Probe(ctx context.Context) error {
	const impossible = "no--shoot" // Gardener rejects such names
	request := apiRequest{
		method:    http.MethodGet,
		path:      c.ns.shootPath(impossible),
		unlimited: true,
		patient:   true,
	}
	err := c.ns.api.sendAndDecode(ctx, request, nil)
	if isObjectNotFound(err, "shoots") {
		err = c.ns.checkNamespaceExists(ctx, true)
	}
	return wrapWithErrorClass(err, "request to Gardener")
}

// FindProjectName returns the name of the project of the namespace. After it, refusals of an API
// server that is starting are told from missing permissions.
func (c *Client) FindProjectName(ctx context.Context) (projectName string, err error) {
	projectName, err = c.ns.findProjectName(ctx)
	if err == nil {
		c.ns.api.learnReadiness(ctx)
	}
	return projectName, wrapWithErrorClass(err, "find project of namespace %q", c.ns.name)
}

// GetShootNamespaceIdentity returns the identity of the Shoots' location: the namespace and its uid. So it
// does not depend on the server's address. If this client may not read the namespace, the server's
// address identifies the location.
func (c *Client) GetShootNamespaceIdentity(ctx context.Context) (identity string, err error) {
	ns, err := c.ns.getNamespaceMeta(ctx, false)
	switch {
	case hasHTTPStatus(err, http.StatusForbidden):
		if err := c.ns.confirmNamespaceReadForbidden(ctx, err); err != nil {
			return "", wrapWithErrorClass(err, "get the namespace of the Shoots")
		}
		return c.ns.api.base.Host + "/" + c.ns.name, nil
	case err != nil:
		return "", wrapWithErrorClass(err, "get the namespace of the Shoots")
	}
	return c.ns.name + " (" + ns.UID + ")", nil
}
