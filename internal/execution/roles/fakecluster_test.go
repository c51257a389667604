package roles_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// A cluster is an API server as far as identities ask it.
type cluster struct {
	mu      sync.Mutex
	sent    []string // method and path
	made    int      // tokens
	good    string   // the token that is known; empty is the last one made
	missing bool     // the account
	down    bool     // nothing answers
	denies  func(a *authorizationv1.ResourceAttributes) bool
	reviews []authorizationv1.SubjectAccessReviewSpec
	atOnce  int // requests, at most
	now     int
	life    int64 // of tokens; zero is what was asked for
}

func (c *cluster) config() *rest.Config {
	return &rest.Config{Host: "http://cluster", Transport: c, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
}

func (c *cluster) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
	}
	c.mu.Lock()
	c.sent = append(c.sent, r.Method+" "+r.URL.Path)
	c.now++
	c.atOnce = max(c.atOnce, c.now)
	down := c.down
	c.mu.Unlock()
	defer func() { c.set(func() { c.now-- }) }()
	took := time.NewTimer(10 * time.Millisecond)
	defer took.Stop()
	select {
	case <-r.Context().Done():
		return nil, r.Context().Err()
	case <-took.C:
	}
	if down {
		return nil, errors.New("connection refused")
	}
	switch {
	case strings.HasSuffix(r.URL.Path, "/token"):
		return c.token(r, body)
	case strings.HasSuffix(r.URL.Path, "/subjectaccessreviews"):
		return c.review(r, body)
	case strings.Contains(r.URL.Path, "/serviceaccounts/"):
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.missing {
			return answer(r, http.StatusNotFound, &metav1.Status{Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound})
		}
		return answer(r, http.StatusOK, map[string]any{"apiVersion": "v1", "kind": "ServiceAccount"})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	good := c.good
	if good == "" {
		good = fmt.Sprintf("token-%d", c.made)
	}
	if r.Header.Get("Authorization") != "Bearer "+good {
		return answer(r, http.StatusUnauthorized, &metav1.Status{Reason: metav1.StatusReasonUnauthorized, Code: http.StatusUnauthorized})
	}
	return answer(r, http.StatusOK, map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "web", "sent": string(body)}})
}

func (c *cluster) token(r *http.Request, body []byte) (*http.Response, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.missing {
		return answer(r, http.StatusNotFound, &metav1.Status{Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound})
	}
	var request authenticationv1.TokenRequest
	if err := json.Unmarshal(body, &request); err != nil {
		return nil, err
	}
	c.made++
	if c.life > 0 {
		request.Spec.ExpirationSeconds = &c.life
	}
	request.Status.Token = fmt.Sprintf("token-%d", c.made)
	return answer(r, http.StatusCreated, &request)
}

func (c *cluster) review(r *http.Request, body []byte) (*http.Response, error) {
	var review authorizationv1.SubjectAccessReview
	if err := json.Unmarshal(body, &review); err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.reviews = append(c.reviews, review.Spec)
	denied := c.denies != nil && c.denies(review.Spec.ResourceAttributes)
	c.mu.Unlock()
	review.Status.Allowed = !denied
	return answer(r, http.StatusCreated, &review)
}

func answer(r *http.Request, code int, body any) (*http.Response, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": []string{"application/json"}}, Body: io.NopCloser(bytes.NewReader(text)), Request: r,
	}, nil
}

func (c *cluster) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// take returns and clears the requests sent so far.
func (c *cluster) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	sent := c.sent
	c.sent = nil
	return sent
}
