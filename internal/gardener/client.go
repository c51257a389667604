package gardener

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/shoot"
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
	userAgent    = "fleetloop-cluster-worker"
	pageSize     = 500
	maxAnswer    = 256 << 20 // far above a page of Shoots with all their managed fields
	maxErrorText = 64 << 10
)

// A Client is the access of one installation to the Shoots of a project. Create it with
// New. It is safe for concurrent use.
type Client struct {
	namespace, installation, manager string

	http    *http.Client
	base    *url.URL
	limiter *rate.Limiter
	timeout time.Duration
	slow    error // cause of a request that times out
	silence time.Duration

	// exists is set once the namespace is known to exist.
	exists atomic.Bool
}

// New returns a client for a kubeconfig. It sends no request. installation is the id of
// the database whose clusters the Shoots belong to.
func New(cfg Config, installation string) (*Client, error) {
	if cfg.Kubeconfig == "" {
		return nil, errors.New("connect to Gardener: GARDENER_KUBECONFIG is not set")
	}
	// Package kube would add the dependencies of operators.
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: cfg.Kubeconfig}
	rc, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("connect to Gardener: read kubeconfig: %w", err)
	}
	return NewForConfig(rc, cfg, installation)
}

// NewForConfig returns a client for a REST config. It sends no request, and does not
// change rc.
func NewForConfig(rc *rest.Config, cfg Config, installation string) (*Client, error) {
	if cfg.Namespace == "" || installation == "" {
		return nil, errors.New("connect to Gardener: namespace and installation id are required")
	}
	rc = rest.CopyConfig(rc)
	rc.UserAgent = cmp.Or(rc.UserAgent, userAgent)
	hc, err := rest.HTTPClientFor(rc)
	if err != nil {
		return nil, fmt.Errorf("connect to Gardener: %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(rc)
	if err != nil {
		return nil, fmt.Errorf("connect to Gardener: %w", err)
	}
	hc.Timeout = 0 // a client timeout would end every watch; requests have their own
	timeout := cmp.Or(cfg.Timeout, DefaultTimeout)
	return &Client{
		namespace: cfg.Namespace, installation: installation, manager: fieldManager(installation),
		http: hc, base: base,
		limiter: rate.NewLimiter(rate.Limit(cmp.Or(cfg.QPS, DefaultQPS)), cmp.Or(cfg.Burst, DefaultBurst)),
		timeout: timeout, slow: &slowError{timeout},
		silence: cmp.Or(cfg.Silence, DefaultSilence),
	}, nil
}

// fieldManager returns the field manager of the installation.
func fieldManager(installation string) string {
	const most = 8 // characters of a uuid, enough to distinguish installations
	return "fleetloop-" + installation[:min(most, len(installation))]
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// A slowError is the cause of a request that timed out.
type slowError struct{ timeout time.Duration }

// Error returns a message with the timeout.
func (e *slowError) Error() string { return fmt.Sprintf("no data received for %s", e.timeout) }

// Is reports whether target is context.DeadlineExceeded, which a cause hides.
func (e *slowError) Is(target error) bool { return target == context.DeadlineExceeded }

// withRequestTimeout returns the context of one request.
func (c *Client) withRequestTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, c.timeout, c.slow)
}

// Probe reads a Shoot that cannot exist. The request takes the whole way to the storage
// of Shoots, and returns no data. It ignores the rate limit, and waits for the answer
// as long as ctx allows, as a late answer counts.
func (c *Client) Probe(ctx context.Context) error {
	const impossible = "no--shoot" // Gardener rejects such names
	_, err := c.sendRequest(ctx, request{method: http.MethodGet, path: c.shootPath(impossible), unlimited: true, patient: true})
	if isAbsent(err, "shoots") {
		err = c.checkNamespaceExists(ctx, true)
	}
	return wrapWithClass(err, "request to Gardener")
}

// Paths of the requests.
const (
	shootsAPI   = "/apis/" + shoot.APIVersion
	bindingsAPI = "/apis/security.gardener.cloud/v1alpha1"
	reviewsPath = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	projects    = shootsAPI + "/projects"
)

func (c *Client) shootsPath() string { return shootsAPI + "/namespaces/" + c.namespace + "/shoots" }

func (c *Client) shootPath(name string) string { return c.shootsPath() + "/" + url.PathEscape(name) }

// A request is a request to the API server.
type request struct {
	method, path string
	query        url.Values
	content      string // media type of the body
	body         any    // encoded as JSON, nil for none
	unlimited    bool   // ignores the rate limit
	patient      bool   // waits as long as the context allows
}

// An answer is a successful response.
type answer struct {
	code int
	body []byte
}

// sendRequest sends a request within the request timeout. Its error is a *refusal, or
// an error of the network.
func (c *Client) sendRequest(ctx context.Context, r request) (answer, error) {
	if !r.patient {
		var cancel context.CancelFunc
		ctx, cancel = c.withRequestTimeout(ctx)
		defer cancel()
	}
	resp, err := c.openResponse(ctx, r)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return answer{}, withCause(ctx, err)
	}
	return answer{resp.StatusCode, body}, nil
}

// openResponse sends a request, and leaves the body of the response to the caller.
func (c *Client) openResponse(ctx context.Context, r request) (*http.Response, error) {
	if !r.unlimited {
		if err := c.waitForRateLimit(ctx); err != nil {
			return nil, err
		}
	}
	req, err := c.newRequest(ctx, r)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, withCause(ctx, err)
	}
	if resp.StatusCode >= http.StatusOK && resp.StatusCode < http.StatusMultipleChoices {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorText))
	if err != nil {
		return nil, withCause(ctx, err)
	}
	return nil, newRefusal(resp, text)
}

func (c *Client) newRequest(ctx context.Context, r request) (*http.Request, error) {
	u := *c.base
	u.Path = strings.TrimSuffix(u.Path, "/") + r.path
	u.RawQuery = r.query.Encode()
	var body io.Reader = http.NoBody
	if r.body != nil {
		text, err := json.Marshal(r.body)
		if err != nil {
			return nil, &shoot.Error{Class: shoot.ClassInvalid, Err: fmt.Errorf("encode: %w", err)}
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, u.String(), body)
	if err != nil {
		return nil, fmt.Errorf("create request: %w", err)
	}
	req.Header.Set("Accept", "application/json")
	if r.body != nil {
		req.Header.Set("Content-Type", cmp.Or(r.content, "application/json"))
	}
	return req, nil
}

// withCause returns the cause of ctx if it has ended, and err otherwise.
func withCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// waitForRateLimit waits for the rate limiter. It fails at once if the wait would exceed the
// deadline of ctx.
func (c *Client) waitForRateLimit(ctx context.Context) error {
	turn := c.limiter.Reserve()
	d := turn.Delay()
	if d == 0 {
		return nil
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < d {
		turn.Cancel()
		return &shoot.Error{Class: shoot.ClassThrottled, RetryAfter: d, Err: fmt.Errorf("client-side rate limit of %g requests per second exceeded", c.limiter.Limit())}
	}
	if err := backoff.Sleep(ctx, d); err != nil {
		turn.Cancel()
		return err
	}
	return nil
}
