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

// Config says where Gardener is, and how much may be asked of it.
type Config struct {
	Kubeconfig string `key:"kubeconfig" env:"GARDENER_KUBECONFIG" flag:"gardener-kubeconfig" doc:"Path of the kubeconfig for the garden cluster."`
	Namespace  string `key:"namespace" env:"GARDENER_NAMESPACE" flag:"gardener-namespace" default:"garden-fundament" validate:"required" doc:"Namespace of the Gardener project that contains the Shoots."`

	QPS     float64       `key:"qps" env:"GARDENER_QPS" default:"50" validate:"gt=0" doc:"Maximum requests per second to Gardener."`
	Burst   int           `key:"burst" env:"GARDENER_BURST" default:"100" validate:"gt=0" doc:"Burst size of the request rate limit."`
	Timeout time.Duration `key:"timeout" env:"GARDENER_TIMEOUT" default:"60s" validate:"gt=0" doc:"Timeout of one request to Gardener. The Gardener API server limits requests to one minute."`

	// Silence is how long a watch may say nothing before its connection counts
	// as dead. Gardener says something about every minute.
	Silence time.Duration
}

// What the zero fields of a Config mean.
const (
	DefaultQPS     = 50
	DefaultBurst   = 100
	DefaultTimeout = time.Minute
	DefaultSilence = 150 * time.Second
)

const (
	userAgent    = "fleetloop-cluster-worker"
	pageSize     = 500
	maxAnswer    = 256 << 20 // a page of Shoots with all that their managers noted is far below
	maxErrorText = 64 << 10
)

// A Client is one installation's access to the Shoots of a project. Make it with
// New. It is safe for concurrent use.
type Client struct {
	namespace, installation, manager string

	http    *http.Client
	base    *url.URL
	limiter *rate.Limiter
	timeout time.Duration
	slow    error // ends a request that takes longer
	silence time.Duration

	// exists is set once the namespace is known to be there.
	exists atomic.Bool
}

// New makes a client by a kubeconfig. It asks nothing of Gardener. installation
// is the id of the database whose clusters the Shoots are.
func New(cfg Config, installation string) (*Client, error) {
	if cfg.Kubeconfig == "" {
		return nil, errors.New("connect to Gardener: GARDENER_KUBECONFIG is not set")
	}
	// Not by package kube, which brings what operators are made of.
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: cfg.Kubeconfig}
	rc, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("connect to Gardener: read kubeconfig: %w", err)
	}
	return NewForConfig(rc, cfg, installation)
}

// NewForConfig makes a client by what a kubeconfig says. It asks nothing of
// Gardener, and does not change rc.
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
	hc.Timeout = 0 // or no watch would outlive it; calls have bounds of their own
	timeout := cmp.Or(cfg.Timeout, DefaultTimeout)
	return &Client{
		namespace: cfg.Namespace, installation: installation, manager: fieldManager(installation),
		http: hc, base: base,
		limiter: rate.NewLimiter(rate.Limit(cmp.Or(cfg.QPS, DefaultQPS)), cmp.Or(cfg.Burst, DefaultBurst)),
		timeout: timeout, slow: &slowError{timeout},
		silence: cmp.Or(cfg.Silence, DefaultSilence),
	}, nil
}

// fieldManager is the installation's name among those who write fields.
func fieldManager(installation string) string {
	const most = 8 // of a uuid are enough to tell installations apart
	return "fleetloop-" + installation[:min(most, len(installation))]
}

// Close lets go of connections that are not in use.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// A slowError ends a request that takes longer than it may.
type slowError struct{ timeout time.Duration }

// Error says for how long nothing was heard.
func (e *slowError) Error() string { return fmt.Sprintf("no data received for %s", e.timeout) }

// Is reports that it is a context.DeadlineExceeded, which a cause hides.
func (e *slowError) Is(target error) bool { return target == context.DeadlineExceeded }

// withRequestTimeout is the context of one request.
func (c *Client) withRequestTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, c.timeout, c.slow)
}

// Probe looks for a Shoot that can not be there: it takes the whole way to where
// Shoots are kept, and brings nothing back. It does not count among the requests
// per second, and waits for its answer as long as ctx allows: a late answer is one.
func (c *Client) Probe(ctx context.Context) error {
	const impossible = "no--shoot" // which Gardener allows no Shoot
	_, err := c.sendRequest(ctx, request{method: http.MethodGet, path: c.shootPath(impossible), unlimited: true, patient: true})
	if isAbsent(err, "shoots") {
		err = c.checkNamespace(ctx, true)
	}
	return wrapRefusal(err, "request to Gardener")
}

// The paths of what we ask for.
const (
	shootsAPI   = "/apis/" + shoot.APIVersion
	bindingsAPI = "/apis/security.gardener.cloud/v1alpha1"
	reviewsPath = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	projects    = shootsAPI + "/projects"
)

func (c *Client) shootsPath() string { return shootsAPI + "/namespaces/" + c.namespace + "/shoots" }

func (c *Client) shootPath(name string) string { return c.shootsPath() + "/" + url.PathEscape(name) }

// A request is one to the API server.
type request struct {
	method, path string
	query        url.Values
	content      string // the type of the body
	body         any    // as JSON, nil for none
	unlimited    bool   // it does not count among the requests per second
	patient      bool   // it takes as long as the context allows
}

// An answer is one that says yes.
type answer struct {
	code int
	body []byte
}

// sendRequest sends a request, within the time that one may take. Its error is a *refusal,
// or one of the way there.
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

// openResponse sends a request, and leaves it to the caller to read the answer.
func (c *Client) openResponse(ctx context.Context, r request) (*http.Response, error) {
	if !r.unlimited {
		if err := c.waitForSlot(ctx); err != nil {
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

// withCause is an error of the way, or why we gave up on it.
func withCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// waitForSlot waits for the turn of a request. One that would come too late does not
// wait for that.
func (c *Client) waitForSlot(ctx context.Context) error {
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
