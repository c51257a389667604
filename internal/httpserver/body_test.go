package httpserver_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/internal/httpserver"
)

func TestWhatIsSlowToArriveEnds(t *testing.T) {
	read := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			http.Error(w, "the body did not come", http.StatusRequestTimeout)
		}
	})
	const soon = 50 * time.Millisecond
	cases := map[string]struct {
		reason string
		cfg    httpserver.Config
		sent   string
		want   string
	}{
		"Header": {"half a header is no request", httpserver.Config{ReadHeaderTimeout: soon}, "GET / HTTP/1.1\r\nHost", ""},
		"Body":   {"whoever sends half a body holds a handler", httpserver.Config{BodyTimeout: soon}, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf", "HTTP/1.1 408 "},
		"Chunk":  {"and so does one who sends half a chunk", httpserver.Config{BodyTimeout: soon}, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n10\r\nhalf", "HTTP/1.1 408 "},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s, _ := start(t, tc.cfg, read, io.Discard)
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			if _, err := io.WriteString(conn, tc.sent); err != nil {
				t.Fatal(err)
			}
			if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(conn)
			if errors.Is(err, syscall.ECONNRESET) {
				err = nil // the server had not read everything when it closed the connection
			}
			if err != nil || !strings.HasPrefix(string(got), tc.want) {
				t.Errorf("%s: got %q, %v; want %q and the end of the connection", tc.reason, got, err, tc.want)
			}
		})
	}
}

// A deadline that remained on the connection would end the context of a handler that runs longer
// than the body may take to arrive.
func TestAHandlerOutlivesTheBoundOfItsBody(t *testing.T) {
	s, _ := start(t, httpserver.Config{BodyTimeout: 20 * time.Millisecond}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		select {
		case <-r.Context().Done():
			http.Error(w, "ended", http.StatusInternalServerError)
		case <-time.NewTimer(100 * time.Millisecond).C:
			hello(w, r)
		}
	}), io.Discard)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.Addr(), strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	res, err := newClient(t, nil).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if text, _ := io.ReadAll(res.Body); string(text) != "hello" {
		t.Errorf("got %q, want the handler to go on past the bound of the body", text)
	}
}
