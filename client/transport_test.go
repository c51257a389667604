package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

func TestListPageReusesItsBuffer(t *testing.T) {
	t.Parallel()
	page := bytes.Repeat([]byte(`{"x":1} `), 4096)
	for name, chunked := range map[string]bool{"LengthGiven": false, "Chunked": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClient(t, Config{}, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				half := page
				if chunked {
					_, _ = w.Write(page[:100])
					_ = http.NewResponseController(w).Flush()
					half = page[100:]
				}
				_, _ = w.Write(half)
			})
			buf := make([]byte, 3, len(page)+1)
			got, err := c.Raw().ListPage(t.Context(), "clusters", nil, buf)
			if err != nil || !bytes.Equal(got, page) {
				t.Fatalf("got %d bytes, err %v, want %d", len(got), err, len(page))
			}
			if &got[0] != &buf[0] {
				t.Error("the buffer had room and was not used")
			}
			grown, err := c.Raw().ListPage(t.Context(), "clusters", nil, nil)
			if err != nil || !bytes.Equal(grown, page) {
				t.Fatalf("without a buffer: got %d bytes, err %v", len(grown), err)
			}
		})
	}
}

func TestBounds(t *testing.T) {
	t.Parallel()
	const limit = 1000
	cases := map[string]struct {
		reason  string
		size    int
		chunked bool
		fails   bool
	}{
		"AtTheLimit":      {"the bound is inclusive", limit, false, false},
		"AtTheLimitFlow":  {"also when the length is not announced", limit, true, false},
		"OverTheLimit":    {"refused by its announcement alone", limit + 1, false, true},
		"OverTheLimitOwn": {"refused while it is read", limit + 1, true, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClient(t, Config{MaxBody: limit}, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				body := bytes.Repeat([]byte("1"), tc.size)
				if tc.chunked {
					_, _ = w.Write(body[:1])
					_ = http.NewResponseController(w).Flush()
					body = body[1:]
				}
				_, _ = w.Write(body)
			})
			buf := make([]byte, 0, 16)
			got, err := c.Raw().ListPage(t.Context(), "clusters", nil, buf)
			if tc.fails != errors.Is(err, ErrInvalidResponse) || !tc.fails && len(got) != tc.size || tc.fails && len(got) != 0 {
				t.Errorf("%s: got %d bytes, err %v", tc.reason, len(got), err)
			}
		})
	}
}

// TestAnnouncedSizeIsNotBelieved plays a server whose announcement alone would
// take all memory.
func TestAnnouncedSizeIsNotBelieved(t *testing.T) {
	t.Parallel()
	c, err := New(Config{Endpoint: "http://nowhere.invalid", WrapTransport: func(http.RoundTripper) http.RoundTripper {
		return roundTrip(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, ContentLength: 1 << 50, Body: http.NoBody}, nil
		})
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Raw().ListPage(t.Context(), "clusters", nil, nil); !errors.Is(err, ErrInvalidResponse) {
		t.Errorf("got %v, want ErrInvalidResponse", err)
	}
}

func TestNoUsableAnswer(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		handler http.HandlerFunc
		want    error
		says    string
	}{
		"SilentServer": {
			"the timeout covers the wait for the header", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			ErrUnreachable, "request timed out (100ms)",
		},
		"SlowBody": {
			"and the reading of the body", func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, `{"id":`)
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			}, ErrUnreachable, "request timed out (100ms)",
		},
		"CutShort": {
			"fewer bytes than announced", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Content-Length", "100")
				_, _ = io.WriteString(w, `{"id":"1"`)
			}, ErrUnreachable, "unexpected EOF",
		},
		"HungUp": {
			"no answer at all", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			ErrUnreachable, "EOF",
		},
		"TruncatedJSON": {
			"as many bytes as announced, yet no object", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, `{"id":"1"`)
			}, ErrInvalidResponse, "unexpected end of JSON",
		},
		"Empty": {
			"a success without its object", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) },
			ErrInvalidResponse, "decode 0 bytes",
		},
		"AnotherServer": {
			"the login page of a proxy", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/html; charset=utf-8")
				_, _ = io.WriteString(w, "<html>")
			}, ErrInvalidResponse, "content type text/html",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var cfg Config
			if strings.Contains(tc.says, "timed out") {
				cfg.Timeout = 100 * time.Millisecond
			}
			c := newClient(t, cfg, tc.handler)
			_, err := c.Clusters().Get(t.Context(), "x")
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) || !strings.Contains(err.Error(), "GET /clusters/x") {
				t.Errorf("%s: got %v, want %v with %q", tc.reason, err, tc.want, tc.says)
			}
		})
	}
}

// TestPlainText checks a server that sets no content type: the Go library then guesses plain text
// for JSON.
func TestPlainText(t *testing.T) {
	t.Parallel()
	c := newClient(t, Config{}, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"id":"1"}`)
	})
	if r, err := c.Clusters().Get(t.Context(), "1"); err != nil || r.ID != "1" {
		t.Errorf("got %+v, %v, want the resource", r, err)
	}
}

func TestNobodyListens(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	c, err := New(Config{Endpoint: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Clusters().Get(t.Context(), "x"); !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), server.URL) {
		t.Errorf("got %v, want ErrUnreachable that names %s", err, server.URL)
	}
}

func TestCallerGivesUp(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	c := newClient(t, Config{}, func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
	})
	why := errors.New("round is over")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { <-begun; cancel(why) }()
	_, err := c.Clusters().Get(ctx, "x")
	if !errors.Is(err, why) || errors.Is(err, ErrUnreachable) {
		t.Errorf("got %v, want the caller's own cause and no word on the server", err)
	}
}

func TestRedirects(t *testing.T) {
	t.Parallel()
	var strayed atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		strayed.Add(1)
		writeJSON(w, http.StatusOK, v1.Resource{ID: "stolen"})
	}))
	t.Cleanup(other.Close)

	c := newClient(t, Config{Token: StaticToken("s3cret")}, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/moved"):
			redirect(w, v1.BasePath+"/clusters/here")
		case strings.HasSuffix(r.URL.Path, "/away"):
			redirect(w, other.URL+v1.BasePath+"/clusters/away")
		case strings.HasSuffix(r.URL.Path, "/loop"):
			redirect(w, v1.BasePath+"/clusters/loop")
		default:
			writeJSON(w, http.StatusOK, v1.Resource{ID: r.Header.Get("Authorization")})
		}
	})

	if got, err := c.Clusters().Get(t.Context(), "moved"); err != nil || got.ID != "Bearer s3cret" {
		t.Errorf("on the same host: got %q, err %v, want it followed with the token", got.ID, err)
	}
	for _, id := range []string{"away", "loop"} {
		if _, err := c.Clusters().Get(t.Context(), id); !hasStatus(err, http.StatusTemporaryRedirect) || !strings.Contains(err.Error(), "not followed") {
			t.Errorf("%s: got %v, want the redirect itself as an error", id, err)
		}
	}
	if _, err := c.Clusters().Delete(t.Context(), "moved"); !hasStatus(err, http.StatusTemporaryRedirect) {
		t.Errorf("delete: got %v, want it not followed", err)
	}
	if n := strayed.Load(); n != 0 {
		t.Errorf("another host was asked %d times", n)
	}
}

func TestConnectionsAreReused(t *testing.T) {
	t.Parallel()
	var seen atomic.Pointer[string]
	c := newClient(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
		addr := r.RemoteAddr
		if old := seen.Swap(&addr); old != nil && *old != addr {
			t.Errorf("request from %s after one from %s", addr, *old)
		}
		if strings.HasSuffix(r.URL.Path, "/none") {
			writeJSON(w, http.StatusNotFound, v1.Problem{Title: "Not Found"})
			return
		}
		writeJSON(w, http.StatusOK, v1.Resource{})
	})
	for range 3 {
		_, _ = c.Clusters().Get(t.Context(), "x")
		_, _ = c.Clusters().Get(t.Context(), "none")
	}
}

func TestWrapStandsInForTheNetwork(t *testing.T) {
	t.Parallel()
	c, err := New(Config{Endpoint: "http://nowhere.invalid", WrapTransport: func(http.RoundTripper) http.RoundTripper {
		return roundTrip(func(*http.Request) (*http.Response, error) {
			rec := httptest.NewRecorder()
			writeJSON(rec, http.StatusOK, v1.Resource{ID: "x"})
			return rec.Result(), nil
		})
	}})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.Clusters().Get(t.Context(), "x"); err != nil || got.ID != "x" {
		t.Errorf("got %q, err %v", got.ID, err)
	}
}

func redirect(w http.ResponseWriter, to string) {
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusTemporaryRedirect)
}
