package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// serveEvents starts a stream, and returns a function that writes to it.
func serveEvents(w http.ResponseWriter) func(string) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	flush := http.NewResponseController(w).Flush
	_ = flush()
	return func(text string) {
		_, _ = io.WriteString(w, text)
		_ = flush()
	}
}

// collect stores the events of a watch.
func collect(into *[]event) func(v1.WatchEvent) error {
	return func(e v1.WatchEvent) error {
		*into = append(*into, event{string(e.Type), e.Cursor, string(e.Data)})
		return nil
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	c := newClient(t, Config{Token: StaticToken("s3cret")}, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if q.Get("watch") != "true" || q.Get("labels") != "a=b" || r.Header.Get("Authorization") != "Bearer s3cret" || !strings.HasPrefix(r.Header.Get("Accept"), "text/event-stream") {
			t.Errorf("asked for %s with %v", r.URL, r.Header)
		}
		send := serveEvents(w)
		send("event: changed\nid: c1\ndata: {\"id\":\"1\"}\n\n")
		send("event: removed\nid: c2\ndata: {\"id\":\"2\"}\n\nevent: bookmark\nid: c3\ndata: {}\n\n")
	})
	q := url.Values{"labels": {"a=b"}}
	var got []event
	err := c.Raw().Watch(t.Context(), "clusters", q, collect(&got))
	want := []event{{"changed", "c1", `{"id":"1"}`}, {"removed", "c2", `{"id":"2"}`}, {"bookmark", "c3", "{}"}}
	if diff := cmp.Diff(want, got); diff != "" || !errors.Is(err, io.EOF) {
		t.Errorf("ended with %v, want io.EOF; events -want +got:\n%s", err, diff)
	}
	if len(q) != 1 {
		t.Errorf("the caller's parameters are %v now", q)
	}
}

func TestWatchEnds(t *testing.T) {
	t.Parallel()
	const bookmark = "event: bookmark\nid: c1\ndata: {}\n\n"
	cases := map[string]struct {
		reason string
		serve  http.HandlerFunc
		want   error
		status int // of the *Error that is wanted
		says   string
		events int
	}{
		"NoStream": {
			"a server that does not know watch answers with a list", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, v1.List{}) },
			errors.ErrUnsupported, 0, "does not support watch", 0,
		},
		"TooOld": {
			"the cursor is refused at the start", func(w http.ResponseWriter, _ *http.Request) {
				writeJSON(w, http.StatusGone, v1.Problem{Title: "Gone", Status: http.StatusGone, Code: "cursor_expired"})
			}, nil, http.StatusGone, "410 Gone", 0,
		},
		"TooOldLater": {
			"the stream says so as its last event", func(w http.ResponseWriter, _ *http.Request) {
				serveEvents(w)(bookmark + "event: error\nid: c1\ndata: {\"status\":410,\"code\":\"cursor_expired\",\"detail\":\"too slow\"}\n\n" + bookmark)
			}, nil, http.StatusGone, "410 Gone: too slow", 1,
		},
		"OddError": {
			"an error that is no problem is worth another try", func(w http.ResponseWriter, _ *http.Request) { serveEvents(w)("event: error\ndata: what\n\n") },
			nil, http.StatusServiceUnavailable, "503", 0,
		},
		"Cut": {
			"the connection breaks between two events", func(w http.ResponseWriter, _ *http.Request) {
				serveEvents(w)(bookmark)
				panic(http.ErrAbortHandler)
			}, ErrUnreachable, 0, "unexpected EOF", 1,
		},
		"CutMidEvent": {
			"and within one, of which nothing is handed over", func(w http.ResponseWriter, _ *http.Request) {
				serveEvents(w)(bookmark + "event: changed\nid: c2\ndata: {}\n")
				panic(http.ErrAbortHandler)
			}, ErrUnreachable, 0, "unexpected EOF", 1,
		},
		"EndMidEvent": {
			"even if the server ends it in good order", func(w http.ResponseWriter, _ *http.Request) {
				serveEvents(w)(bookmark + "event: changed\nid: c2\ndata: {}\n")
			}, ErrUnreachable, 0, "unexpected EOF", 1,
		},
		"HungUp": {
			"a server that never answered did not end a stream", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			ErrUnreachable, 0, "EOF", 0,
		},
		"TooLarge": {
			"an event beyond the bound", func(w http.ResponseWriter, _ *http.Request) {
				serveEvents(w)("data: " + strings.Repeat("x", 2000) + "\n\n")
			},
			ErrInvalidResponse, 0, "larger than 1000 bytes", 0,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClient(t, Config{MaxBody: 1000}, tc.serve)
			var got []event
			err := c.Raw().Watch(t.Context(), "clusters", nil, collect(&got))
			if tc.want != nil && !errors.Is(err, tc.want) || !strings.Contains(fmt.Sprint(err), tc.says) || errors.Is(err, io.EOF) {
				t.Errorf("%s: got %v, want %v with %q", tc.reason, err, tc.want, tc.says)
			}
			if tc.status != 0 && !hasStatus(err, tc.status) {
				t.Errorf("%s: got %v, want status %d", tc.reason, err, tc.status)
			}
			if len(got) != tc.events {
				t.Errorf("%s: handed over %v, want %d", tc.reason, got, tc.events)
			}
		})
	}
}

// TestWatchStopsWithItsCaller: the stream is given up, which the server sees.
func TestWatchStopsWithItsCaller(t *testing.T) {
	t.Parallel()
	full := errors.New("no room")
	for name, stop := range map[string]func(cancel context.CancelCauseFunc) error{
		"HandleFails": func(context.CancelCauseFunc) error { return full },
		"ContextEnds": func(cancel context.CancelCauseFunc) error { cancel(full); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gone := make(chan struct{})
			c := newClient(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
				serveEvents(w)("data: 1\n\ndata: 2\n\n")
				<-r.Context().Done()
				close(gone)
			})
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			n := 0
			err := c.Raw().Watch(ctx, "clusters", nil, func(v1.WatchEvent) error { n++; return stop(cancel) })
			if !errors.Is(err, full) || errors.Is(err, ErrUnreachable) || n != 1 {
				t.Errorf("got %v after %d events, want the caller's reason after 1", err, n)
			}
			<-gone
		})
	}
}

func TestWatchTakesARotatedToken(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	write(t, file, "old")
	asked := 0
	c := newClient(t, Config{Token: FileToken(file)}, func(w http.ResponseWriter, r *http.Request) {
		if asked++; r.Header.Get("Authorization") != "Bearer new" {
			write(t, file, "new")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		serveEvents(w)("data: 1\n\n")
	})
	var got []event
	if err := c.Raw().Watch(t.Context(), "clusters", nil, collect(&got)); !errors.Is(err, io.EOF) || len(got) != 1 || asked != 2 {
		t.Errorf("got %v, %v after %d requests", got, err, asked)
	}
}

// newNearby returns a client of a server on a network in memory, so that both can run in a bubble.
func newNearby(t *testing.T, cfg Config, h http.HandlerFunc) *Client {
	t.Helper()
	l := &memory{conns: make(chan net.Conn), done: make(chan struct{})}
	server := &http.Server{Handler: h} //nolint:gosec // nobody slow calls
	go func() { _ = server.Serve(l) }()
	transport := &http.Transport{DialContext: l.dial}
	cfg.Endpoint = "http://nearby"
	cfg.WrapTransport = func(http.RoundTripper) http.RoundTripper { return transport }
	if cfg.MaxAttempts == 0 {
		cfg.MaxAttempts = 1
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = server.Close()
	})
	return c
}

// memory is a listener without a network.
type memory struct {
	conns chan net.Conn
	done  chan struct{}
}

func (m *memory) dial(context.Context, string, string) (net.Conn, error) {
	near, far := net.Pipe()
	m.conns <- far
	return near, nil
}

func (m *memory) Accept() (net.Conn, error) {
	select {
	case c := <-m.conns:
		return c, nil
	case <-m.done:
		return nil, net.ErrClosed
	}
}

func (m *memory) Close() error   { close(m.done); return nil }
func (m *memory) Addr() net.Addr { return &net.UnixAddr{Name: "memory"} }

func TestWatchBoundsSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newNearby(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
			send := serveEvents(w)
			for range 100 { // far longer than any timeout
				time.Sleep(10 * time.Second)
				send(": alive\n")
				time.Sleep(9 * time.Second)
				send("data: x\n\n")
			}
			<-r.Context().Done()
		})
		begun := time.Now()
		n := 0
		err := c.Raw().Watch(t.Context(), "clusters", nil, func(v1.WatchEvent) error {
			n++
			time.Sleep(time.Minute) // a slow caller is not the server's silence
			return nil
		})
		if n != 100 || !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "sent nothing for 12s") {
			t.Errorf("ended with %v after %d events, want silence after 100", err, n)
		}
		if took := time.Since(begun); took < 100*time.Minute+12*time.Second {
			t.Errorf("took %s", took)
		}
	})
}

func TestWatchWaitsForItsStart(t *testing.T) {
	t.Parallel()
	for name, serve := range map[string]http.HandlerFunc{
		"NoHeader": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"NoBodyOfARefusal": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusGone)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newNearby(t, Config{Timeout: 3 * time.Second}, serve)
				begun := time.Now()
				if err := c.Raw().Watch(t.Context(), "clusters", nil, nil); err == nil {
					t.Error("no error")
				}
				if took := time.Since(begun); took != 3*time.Second {
					t.Errorf("took %s, want the timeout", took)
				}
			})
		})
	}
}

// TestWatchReconnects checks that a watch continues behind the last event, whatever ended the stream,
// and ends with a permanent error.
func TestWatchReconnects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked []string
		c := newNearby(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
			asked = append(asked, r.URL.RawQuery)
			switch len(asked) {
			case 1: // ends in good order
				serveEvents(w)("event: bookmark\nid: c1\ndata: {}\n\nevent: changed\nid: c2\ndata: {\"id\":\"1\",\"name\":\"a\"}\n\n")
			case 2:
				writeJSON(w, http.StatusServiceUnavailable, v1.Problem{})
			case 3:
				serveEvents(w)("event: removed\nid: c3\ndata: {\"id\":\"1\"}\n\nevent: changed\n")
				panic(http.ErrAbortHandler)
			default:
				writeJSON(w, http.StatusGone, v1.Problem{Code: "cursor_expired"})
			}
		})
		var got []string
		var last error
		for e, err := range c.Clusters().Watch(t.Context(), ListOptions{Labels: "a=b"}, "") {
			if last = err; err == nil {
				got = append(got, fmt.Sprint(e.Type, " ", e.Cursor, " ", e.Item.ID, e.Item.Name))
			}
		}
		if diff := cmp.Diff([]string{"bookmark c1 ", "changed c2 1a", "removed c3 1"}, got); diff != "" || !IsExpired(last) {
			t.Errorf("ended with %v; events -want +got:\n%s", last, diff)
		}
		first, later := "labels=a%3Db&watch=true", "changed_since=c%d&labels=a%%3Db&watch=true"
		if diff := cmp.Diff([]string{first, fmt.Sprintf(later, 2), fmt.Sprintf(later, 2), fmt.Sprintf(later, 3)}, asked); diff != "" {
			t.Errorf("requests -want +got:\n%s", diff)
		}
	})
}

func TestWatchIteratorEnds(t *testing.T) {
	t.Parallel()
	why := errors.New("enough")
	cases := map[string]struct {
		reason string
		serve  http.HandlerFunc
		want   func(error) bool
		asked  int
	}{
		"NeverReached": {"a wrong endpoint must not hang", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }, IsTransient, DefaultMaxAttempts},
		"NoWatch": {
			"the server is older", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, v1.List{}) },
			func(err error) bool { return errors.Is(err, errors.ErrUnsupported) }, 1,
		},
		"Nonsense": {
			"it would come again", func(w http.ResponseWriter, _ *http.Request) { serveEvents(w)("event: changed\nid: c1\ndata: what\n\n") },
			func(err error) bool { return errors.Is(err, ErrInvalidResponse) }, 1,
		},
		"ContextEnds": {
			"its cause comes through", func(w http.ResponseWriter, r *http.Request) {
				serveEvents(w)("event: bookmark\nid: c1\ndata: {}\n\n")
				<-r.Context().Done()
			},
			func(err error) bool { return errors.Is(err, why) && !IsTransient(err) }, 1,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				c := newNearby(t, Config{MaxAttempts: DefaultMaxAttempts}, func(w http.ResponseWriter, r *http.Request) { asked++; tc.serve(w, r) })
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				var last error
				for _, err := range c.ChangeEvents().Watch(ctx, ChangeEventOptions{}, "") {
					if last = err; err == nil {
						cancel(why)
					}
				}
				if !tc.want(last) || asked != tc.asked {
					t.Errorf("%s: got %v after %d requests, want %d", tc.reason, last, asked, tc.asked)
				}
			})
		})
	}
}

// TestWatchStopsWhenTheReaderDoes checks that the loop's end gives up the stream.
func TestWatchStopsWhenTheReaderDoes(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	c := newClient(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
		serveEvents(w)("event: bookmark\nid: c1\ndata: {}\n\nevent: bookmark\nid: c2\ndata: {}\n\n")
		<-r.Context().Done()
		close(gone)
	})
	n := 0
	for range c.Clusters().Watch(t.Context(), ListOptions{}, "") {
		n++
		break
	}
	if <-gone; n != 1 {
		t.Errorf("got %d events", n)
	}
}
