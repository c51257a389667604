package janitor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/internal/httpserver"
)

// WebhookConfig configures a webhook as provider.
type WebhookConfig struct {
	// URL receives the requests: POST with a WebhookRequest as JSON, and the key also in
	// the header Idempotency-Key. A 2xx status means that the request has started, also
	// if it is repeated. 400, 405, 410, 413, 415, 422 and 501 mean that it can never
	// start. Any other status is retried until the deadline.
	URL string
	// StatusURL receives the same request with the reference, and returns 200 with a
	// WebhookStatus. Empty means that the progress cannot be queried.
	StatusURL string
	// NotReadyMeansTerminated makes a terminated machine count as gone when its node is
	// not Ready, if there is no StatusURL. Without either, another component, such as a
	// cloud controller manager, must delete the Node.
	NotReadyMeansTerminated bool
	// TokenFile holds the bearer token and is read for each request. Empty means no
	// token.
	TokenFile string
	// Timeout limits each request. Zero means 10 s.
	Timeout time.Duration
}

// A WebhookRequest is the body of a request to a webhook.
type WebhookRequest struct {
	IdempotencyKey types.UID `json:"idempotencyKey"`
	Action         Action    `json:"action"`
	Object         string    `json:"object"` // kind/name
	Force          bool      `json:"force"`
	Deadline       time.Time `json:"deadline"`
	RequestID      string    `json:"requestID,omitempty"`
	// Node is omitted if the node is gone.
	Node *WebhookNode `json:"node,omitempty"`
}

// A WebhookNode is the node of a request.
type WebhookNode struct {
	Name       string               `json:"name"`
	UID        types.UID            `json:"uid"`
	ProviderID string               `json:"providerID,omitempty"`
	BootID     string               `json:"bootID,omitempty"`
	SystemUUID string               `json:"systemUUID,omitempty"`
	Addresses  []corev1.NodeAddress `json:"addresses,omitempty"`
	Labels     map[string]string    `json:"labels,omitempty"`
}

// A WebhookAnswer is the optional body of a 2xx response.
type WebhookAnswer struct {
	// RequestID is the webhook's id of the request.
	RequestID string `json:"requestID"`
}

// A WebhookStatus is the response of StatusURL.
type WebhookStatus struct {
	State   State  `json:"state"` // Running, Done or Failed
	Message string `json:"message"`
}

const (
	webhookTimeout = 10 * time.Second
	maxBody        = 64 << 10
	maxErrorDetail = 256
	accepted       = "accepted" // reference of a request without an id
	urlErrorFormat = "%s must be an http:// or https:// URL with a host and without a user"
)

var errWebhookTimeout = errors.New("webhook timeout")

// webhookProvider is a provider that sends requests to a webhook.
type webhookProvider struct {
	cfg    WebhookConfig
	client *http.Client
}

func newWebhookProvider(cfg WebhookConfig, deps ProviderDeps) (*webhookProvider, error) {
	if !isWebhookURL(cfg.URL) {
		return nil, fmt.Errorf(urlErrorFormat, "url")
	}
	if cfg.StatusURL != "" && !isWebhookURL(cfg.StatusURL) {
		return nil, fmt.Errorf(urlErrorFormat, "status url")
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = webhookTimeout
	}
	if deps.Transport == nil {
		deps.Transport = httpserver.NewTransport()
	}
	return &webhookProvider{cfg, &http.Client{
		Transport: deps.Transport,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // the token is not sent to other hosts
		},
	}}, nil
}

func isWebhookURL(text string) bool {
	u, err := url.Parse(text)
	if err != nil {
		return false
	}
	isHTTP := u.Scheme == "https" || u.Scheme == "http"
	return isHTTP && u.Host != "" && u.User == nil
}

// Name returns "webhook".
func (*webhookProvider) Name() string { return string(ProviderWebhook) }

// Start sends the request to the webhook.
func (w *webhookProvider) Start(ctx context.Context, r Request) (reference string, err error) {
	body, err := w.postRequest(ctx, w.cfg.URL, r, "")
	if err != nil {
		return "", err
	}
	var answer WebhookAnswer
	_ = json.Unmarshal(body, &answer) // the body is optional and may have any content
	if answer.RequestID == "" || len(answer.RequestID) > maxReference {
		return accepted, nil
	}
	return answer.RequestID, nil
}

// CheckProgress queries the progress at StatusURL, if one is set.
func (w *webhookProvider) CheckProgress(ctx context.Context, r Request, reference string) (Progress, error) {
	if w.cfg.StatusURL == "" {
		return w.progressDoneOnlyIfTerminated(r), nil
	}
	body, err := w.postRequest(ctx, w.cfg.StatusURL, r, reference)
	if err != nil {
		return Progress{}, err
	}
	var s WebhookStatus
	if err := json.Unmarshal(body, &s); err != nil {
		return Progress{}, fmt.Errorf("read webhook status: %w", err)
	}
	switch s.State {
	case StateRunning, StateDone, StateFailed:
		return Progress(s), nil
	}
	return Progress{}, fmt.Errorf("webhook status has unknown state %q: want %s, %s or %s",
		s.State, StateRunning, StateDone, StateFailed)
}

// progressDoneOnlyIfTerminated derives the progress from the node.
func (w *webhookProvider) progressDoneOnlyIfTerminated(r Request) Progress {
	switch {
	case r.Action == ActionTerminate && r.Node == nil:
		return Progress{State: StateDone, Message: "webhook accepted the request, and the node is deleted"}
	case r.Action == ActionTerminate && w.cfg.NotReadyMeansTerminated && !isReady(r.Node):
		return Progress{State: StateDone, Message: "webhook accepted the request, and the node is not Ready"}
	case r.Action == ActionTerminate:
		return Progress{State: StateRunning, Message: "webhook accepted the request; waiting for the Node to be deleted with its machine"}
	}
	return Progress{State: StateRunning, Message: "webhook accepted the request"}
}

func (w *webhookProvider) postRequest(
	ctx context.Context, endpoint string, r Request, reference string,
) (answer []byte, err error) {
	payload, err := json.Marshal(WebhookRequest{
		IdempotencyKey: r.Key,
		Action:         r.Action,
		Object:         r.By.Kind + "/" + r.By.Name,
		Force:          r.Force,
		Deadline:       r.Deadline.UTC(),
		RequestID:      reference,
		Node:           newWebhookNode(r),
	})
	if err != nil {
		return nil, fmt.Errorf("call webhook: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, w.cfg.Timeout, errWebhookTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, bytes.NewReader(payload))
	if err != nil {
		return nil, fmt.Errorf("call webhook: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Idempotency-Key", string(r.Key))
	if err := w.setBearerTokenFromFile(req); err != nil {
		return nil, err
	}
	resp, err := w.client.Do(req)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, fmt.Errorf("call webhook: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // no data is lost: the body was only read
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return nil, fmt.Errorf("read webhook response: %w", err)
	}
	return body, permanentOrRetryableError(resp, body)
}

func (w *webhookProvider) setBearerTokenFromFile(req *http.Request) error {
	if w.cfg.TokenFile == "" {
		return nil
	}
	token, err := os.ReadFile(w.cfg.TokenFile)
	if err != nil {
		return fmt.Errorf("read webhook token: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	return nil
}

// permanentOrRetryableError returns the error of a response. A wrong address or token is not
// permanent, because a person can correct it.
func permanentOrRetryableError(resp *http.Response, body []byte) error {
	if resp.StatusCode/100 == 2 { //nolint:mnd // the class of success
		return nil
	}
	detail := ""
	if media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err == nil && media != "text/html" {
		start := string(body[:min(len(body), maxErrorDetail)])
		detail = ": " + strings.ToValidUTF8(strings.TrimSpace(start), "")
	}
	err := fmt.Errorf("webhook returned %s%s", resp.Status, detail)
	switch resp.StatusCode {
	case http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusGone, http.StatusRequestEntityTooLarge,
		http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity, http.StatusNotImplemented:
		return Permanent(err)
	}
	return err
}

func newWebhookNode(r Request) *WebhookNode {
	n := r.Node
	if n == nil {
		return nil
	}
	return &WebhookNode{
		Name: n.Name, UID: n.UID, ProviderID: n.Spec.ProviderID, BootID: r.BootID,
		SystemUUID: n.Status.NodeInfo.SystemUUID, Addresses: n.Status.Addresses, Labels: n.Labels,
	}
}
