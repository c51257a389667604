package action

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A wire sees requests on their way, and can break them.
type wire struct {
	mu     sync.Mutex
	writes []string // that were sent, dry runs excepted
	dry    []string // dry runs
	reads  int

	// before is called with each write; an answer is given instead of the server's.
	before func(n int, r *http.Request) *http.Response
	// after is called with each answer to a write, and gives the one to use; nil is a broken connection.
	after func(n int, r *http.Response) *http.Response
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (w *wire) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet {
			w.mu.Lock()
			w.reads++
			w.mu.Unlock()
			return next.RoundTrip(r)
		}
		n := w.count(r)
		if w.before != nil {
			if answer := w.before(n, r); answer != nil {
				_ = r.Body.Close()
				return answer, nil
			}
		}
		answer, err := next.RoundTrip(r)
		if err == nil && w.after != nil {
			if answer = w.after(n, answer); answer == nil {
				return nil, io.ErrUnexpectedEOF
			}
		}
		return answer, err
	})
}

// count gives the number of a write, from 1.
func (w *wire) count(r *http.Request) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	line := r.Method + " " + r.URL.Path
	if isDry(r) {
		w.dry = append(w.dry, line)
		return len(w.writes) + len(w.dry)
	}
	w.writes = append(w.writes, line)
	return len(w.writes) + len(w.dry)
}

// isDry reports whether a request has the dry-run option.
func isDry(r *http.Request) bool {
	if r.URL.Query().Get("dryRun") == metav1.DryRunAll {
		return true
	}
	if r.Body == nil {
		return false
	}
	body, _ := io.ReadAll(r.Body)
	_ = r.Body.Close()
	r.Body = io.NopCloser(bytes.NewReader(body))
	return r.Method == http.MethodDelete && bytes.Contains(body, []byte(`"dryRun":["All"]`))
}

func (w *wire) sent() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.writes...)
}

// refusal is an answer of the API server.
func refusal(code int, reason metav1.StatusReason, message string) *http.Response {
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	}
	body, _ := json.Marshal(status)
	return &http.Response{
		StatusCode: code, Status: fmt.Sprintf("%d", code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)),
	}
}
