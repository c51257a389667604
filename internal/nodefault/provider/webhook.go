package provider

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
)

// WebhookConfig is the endpoint that reboots and terminates machines.
type WebhookConfig struct {
	// URL takes requests: POST, JSON as WebhookRequest has it, the key also as
	// the header Idempotency-Key. 2xx is that the request is under way, also if
	// it came before. 400, 405, 410, 413, 415, 422 and 501 are that it never
	// will be; everything else is tried again until the deadline.
	URL string
	// StatusURL takes the same with the reference, and answers 200 with a
	// WebhookStatus. Empty is that nobody can be asked.
	StatusURL string
	// NotReadyIsGone has a machine that was terminated count as gone when its
	// node is not Ready, where there is no StatusURL. Without either the Node has
	// to be removed by somebody else, such as a cloud controller manager.
	NotReadyMeansTerminated bool
	// TokenFile has the bearer token, and is read for each request. Empty is none.
	TokenFile string
	// Timeout is for each request. Zero is 10 s.
	Timeout time.Duration
}

// A WebhookRequest is what a webhook is sent.
type WebhookRequest struct {
	IdempotencyKey types.UID `json:"idempotencyKey"`
	Action         Action    `json:"action"`
	Object         string    `json:"object"` // kind/name
	Force          bool      `json:"force"`
	Deadline       time.Time `json:"deadline"`
	RequestID      string    `json:"requestID,omitempty"`
	// Node is missing when it is gone.
	Node *WebhookNode `json:"node,omitempty"`
}

// A WebhookNode is the node whose machine is meant.
type WebhookNode struct {
	Name       string               `json:"name"`
	UID        types.UID            `json:"uid"`
	ProviderID string               `json:"providerID,omitempty"`
	BootID     string               `json:"bootID,omitempty"`
	SystemUUID string               `json:"systemUUID,omitempty"`
	Addresses  []corev1.NodeAddress `json:"addresses,omitempty"`
	Labels     map[string]string    `json:"labels,omitempty"`
}

// A WebhookAnswer may be the body of a 2xx answer.
type WebhookAnswer struct {
	// Reference is what the endpoint calls the request.
	RequestID string `json:"requestID"`
}

// A WebhookStatus is what a StatusURL answers.
type WebhookStatus struct {
	State   State  `json:"state"` // Running, Done or Failed
	Message string `json:"message"`
}

const (
	webhookTimeout = 10 * time.Second
	maxAnswer      = 64 << 10
	maxReference   = 512
	maxSaid        = 256
	accepted       = "accepted"
)

var errWebhookTimeout = errors.New("webhook timeout")

// webhook is a provider that asks an endpoint.
type webhook struct {
	cfg    WebhookConfig
	client *http.Client
}

func newWebhook(cfg WebhookConfig, deps Deps) (*webhook, error) {
	for name, text := range map[string]string{"url": cfg.URL, "status url": cfg.StatusURL} {
		u, err := url.Parse(text)
		if name == "status url" && text == "" {
			continue
		}
		if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil {
			return nil, fmt.Errorf("%s must be an http:// or https:// URL with a host and without a user", name)
		}
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = webhookTimeout
	}
	return &webhook{cfg, &http.Client{
		Transport:     deps.Transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // the token goes nowhere else
	}}, nil
}

// Name is "webhook".
func (*webhook) Name() string { return string(KindWebhook) }

// Reboot asks for it.
func (w *webhook) Reboot(ctx context.Context, r Request) (string, error) {
	return w.requestWebhook(ctx, r)
}

// Terminate asks for it.
func (w *webhook) Terminate(ctx context.Context, r Request) (string, error) {
	return w.requestWebhook(ctx, r)
}

func (w *webhook) requestWebhook(ctx context.Context, r Request) (string, error) {
	body, err := w.postRequest(ctx, w.cfg.URL, r, "")
	if err != nil {
		return "", err
	}
	var answer WebhookAnswer
	_ = json.Unmarshal(body, &answer) // it may say anything, or nothing
	if answer.RequestID == "" || len(answer.RequestID) > maxReference {
		return accepted, nil
	}
	return answer.RequestID, nil
}

// Look asks how far it is, where somebody can be asked.
func (w *webhook) Look(ctx context.Context, r Request, reference string) (Progress, error) {
	if w.cfg.StatusURL == "" {
		return w.guessProgress(r), nil
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
	return Progress{}, fmt.Errorf("webhook status has unknown state %q: want %s, %s or %s", s.State, StateRunning, StateDone, StateFailed)
}

// guessProgress is what the node shows.
func (w *webhook) guessProgress(r Request) Progress {
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

func (w *webhook) postRequest(ctx context.Context, to string, r Request, reference string) ([]byte, error) {
	payload, err := json.Marshal(WebhookRequest{
		IdempotencyKey: r.Key, Action: r.Action, Object: r.By.Kind + "/" + r.By.Name, Force: r.Force,
		Deadline: r.Deadline.UTC(), RequestID: reference, Node: webhookNode(r),
	})
	if err != nil {
		return nil, fmt.Errorf("call webhook: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, w.cfg.Timeout, errWebhookTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(payload))
	if err != nil {
		return nil, fmt.Errorf("call webhook: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Idempotency-Key", string(r.Key))
	if err := w.authorize(req); err != nil {
		return nil, err
	}
	resp, err := w.client.Do(req)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, fmt.Errorf("call webhook: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // nothing was written to it
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read webhook response: %w", err)
	}
	return body, classifyResponse(resp, body)
}

func (w *webhook) authorize(req *http.Request) error {
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

// classifyResponse says what an answer means. A wrong address or token is not the
// request's fault: somebody mends it, and then it works.
func classifyResponse(resp *http.Response, body []byte) error {
	if resp.StatusCode/100 == 2 { //nolint:mnd // the class of success
		return nil
	}
	said := ""
	if kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err == nil && kind != "text/html" {
		said = ": " + strings.ToValidUTF8(strings.TrimSpace(string(body[:min(len(body), maxSaid)])), "")
	}
	err := fmt.Errorf("webhook returned %s%s", resp.Status, said)
	switch resp.StatusCode {
	case http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusGone, http.StatusRequestEntityTooLarge,
		http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity, http.StatusNotImplemented:
		return Permanent(err)
	}
	return err
}

func webhookNode(r Request) *WebhookNode {
	n := r.Node
	if n == nil {
		return nil
	}
	return &WebhookNode{
		Name: n.Name, UID: n.UID, ProviderID: n.Spec.ProviderID, BootID: r.BootID,
		SystemUUID: n.Status.NodeInfo.SystemUUID, Addresses: n.Status.Addresses, Labels: n.Labels,
	}
}

func isReady(n *corev1.Node) bool {
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
