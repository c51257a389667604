package janitor

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// endpoint serves a webhook.
func endpoint(t *testing.T, answer http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	return server.URL
}

func newHook(t *testing.T, cfg WebhookConfig) Provider {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	p, err := NewProvider(ProviderConfig{Kind: ProviderWebhook, Webhook: cfg}, ProviderDeps{Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestWebhookRequest verifies that requests match the documentation, with the same key
// each time and the current token.
func TestWebhookRequest(t *testing.T) {
	t.Parallel()
	var bodies, tokens, keys []string
	url := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies, tokens, keys = append(bodies, string(body)), append(tokens, r.Header.Get("Authorization")), append(keys, r.Header.Get("Idempotency-Key"))
		if r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s", r.Method, r.Header.Get("Content-Type"))
		}
		w.WriteHeader(http.StatusAccepted)
		_, _ = fmt.Fprint(w, `{"requestID":"bmc-17"}`)
	})
	file := filepath.Join(t.TempDir(), "token")
	p := newHook(t, WebhookConfig{URL: url, TokenFile: file})
	r := newRequest(ActionReboot, "gpu-1")
	r.Deadline = time.Date(2026, 5, 1, 3, 0, 0, 0, time.UTC)
	_, err := p.Start(t.Context(), r)
	wantAnswer(t, "", err, "error", "token")
	for _, token := range []string{"one\n", "two"} {
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
		reference, err := p.Start(t.Context(), r)
		wantAnswer(t, reference, err, "accepted", "bmc-17")
	}
	body := `{"idempotencyKey":"reboot-gpu-1","action":"reboot","object":"RebootNode/gpu-1-1","force":false,"deadline":"2026-05-01T03:00:00Z",` +
		`"node":{"name":"gpu-1","uid":"node-uid","providerID":"aws:///eu/i-1","bootID":"boot-1","addresses":[{"type":"InternalIP","address":"10.0.0.1"}],"labels":{"pool":"gpu"}}}`
	if diff := cmp.Diff([]string{body, body}, bodies); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]string{"Bearer one", "Bearer two"}, tokens); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if keys[0] != "reboot-gpu-1" || keys[0] != keys[1] {
		t.Errorf("the keys are %v", keys)
	}
}

// TestWebhookAnswers verifies which responses mean started, rejected permanently, or to
// be retried.
func TestWebhookAnswers(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason     string
		status     int
		header     [2]string
		body       string
		want, text string
	}{
		"OK":           {"without a word", 200, [2]string{}, "", "accepted", "accepted"},
		"NoContent":    {"likewise", 204, [2]string{}, "", "accepted", "accepted"},
		"NotJSON":      {"what it says is its own business", 200, [2]string{}, "<ok/>", "accepted", "accepted"},
		"LongName":     {"a name that does not fit is left out", 200, [2]string{}, `{"requestID":"` + strings.Repeat("x", 600) + `"}`, "accepted", "accepted"},
		"Unknown":      {"the machine is not its own", 422, [2]string{"Content-Type", "application/json"}, `{"error":"no such machine"}`, "permanent", "no such machine"},
		"BadRequest":   {"it would not understand it later", 400, [2]string{"Content-Type", "text/plain"}, "what?", "permanent", "400 Bad Request: what?"},
		"Gone":         {"it will not come back", 410, [2]string{}, "", "permanent", "410"},
		"Unauthorized": {"the token may be mended", 401, [2]string{}, "", "error", "401"},
		"NotFound":     {"the address may be mended", 404, [2]string{"Content-Type", "text/html"}, "<h1>404</h1>", "error", "404 Not Found"},
		"Conflict":     {"something else is under way", 409, [2]string{}, "", "error", "409"},
		"TooMany":      {"later", 429, [2]string{}, "", "error", "429"},
		"Broken":       {"later", 503, [2]string{}, "", "error", "503"},
		"Redirect":     {"the token is for nobody else", 307, [2]string{"Location", "http://127.0.0.1:1/"}, "", "error", "307"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := endpoint(t, func(w http.ResponseWriter, _ *http.Request) {
				if tc.header[0] != "" {
					w.Header().Set(tc.header[0], tc.header[1])
				}
				w.WriteHeader(tc.status)
				_, _ = io.WriteString(w, tc.body)
			})
			reference, err := newHook(t, WebhookConfig{URL: url}).Start(t.Context(), newRequest(ActionTerminate, "n"))
			wantAnswer(t, reference, err, tc.want, tc.text)
			if err != nil && strings.Contains(err.Error(), "<h1>") {
				t.Errorf("%s: a page is no message: %v", tc.reason, err)
			}
		})
	}
}

// TestWebhookHangs verifies the timeout of a webhook that never responds.
func TestWebhookHangs(t *testing.T) {
	t.Parallel()
	let := make(chan struct{})
	url := endpoint(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-let:
		case <-r.Context().Done():
		}
	})
	defer close(let)
	_, err := newHook(t, WebhookConfig{URL: url, Timeout: 50 * time.Millisecond}).Start(t.Context(), newRequest(ActionReboot, "n"))
	wantAnswer(t, "", err, "error", "webhook timeout")
	_, err = newHook(t, WebhookConfig{URL: "http://127.0.0.1:1/"}).Start(t.Context(), newRequest(ActionReboot, "n"))
	wantAnswer(t, "", err, "error", "refused")
}

// TestWebhookProgress verifies the progress, from the status URL or from the node.
func TestWebhookProgress(t *testing.T) {
	t.Parallel()
	says := func(body string) WebhookConfig {
		return WebhookConfig{URL: "http://127.0.0.1:1/", StatusURL: endpoint(t, func(w http.ResponseWriter, r *http.Request) {
			sent, _ := io.ReadAll(r.Body)
			if !strings.Contains(string(sent), `"requestID":"bmc-17"`) {
				w.WriteHeader(http.StatusBadRequest)
			}
			_, _ = io.WriteString(w, body)
		})}
	}
	alone := WebhookConfig{URL: "http://127.0.0.1:1/"}
	guesses := alone
	guesses.NotReadyMeansTerminated = true
	cases := map[string]struct {
		reason string
		cfg    WebhookConfig
		action Action
		gone   bool
		ready  corev1.ConditionStatus
		want   State // empty means an error
	}{
		"Done":        {"the endpoint says so", says(`{"state":"Done","message":"off"}`), ActionTerminate, true, "", StateDone},
		"Running":     {"likewise", says(`{"state":"Running"}`), ActionReboot, false, corev1.ConditionTrue, StateRunning},
		"Failed":      {"likewise", says(`{"state":"Failed","message":"no power"}`), ActionReboot, false, corev1.ConditionTrue, StateFailed},
		"Odd":         {"a word that nobody knows is no state", says(`{"state":"ok"}`), ActionReboot, false, corev1.ConditionTrue, ""},
		"NoJSON":      {"likewise", says(`ok`), ActionReboot, false, corev1.ConditionTrue, ""},
		"Reboot":      {"nobody can be asked: the boot id will tell", alone, ActionReboot, false, corev1.ConditionTrue, StateRunning},
		"NodeGone":    {"somebody has removed the Node", alone, ActionTerminate, true, "", StateDone},
		"NodeThere":   {"a Node that is not ready may come back", alone, ActionTerminate, false, corev1.ConditionUnknown, StateRunning},
		"NotReady":    {"unless that counts as gone", guesses, ActionTerminate, false, corev1.ConditionUnknown, StateDone},
		"StillReady":  {"which it is not yet", guesses, ActionTerminate, false, corev1.ConditionTrue, StateRunning},
		"GuessReboot": {"it is about terminations alone", guesses, ActionReboot, false, corev1.ConditionUnknown, StateRunning},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRequest(tc.action, "n")
			r.Node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: tc.ready}}
			if tc.gone {
				r.Node = nil
			}
			p, err := newHook(t, tc.cfg).CheckProgress(t.Context(), r, "bmc-17")
			if p.State != tc.want || (err == nil) != (tc.want != "") {
				t.Errorf("%s: %+v, %v", tc.reason, p, err)
			}
		})
	}
}
