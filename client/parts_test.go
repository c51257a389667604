package client

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// TestListInTwoParts: of a page that is large the beginning is read at once, and
// the rest when it is asked for.
func TestListInTwoParts(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"small": 10, "almost": MaxHead - 1, "head": MaxHead, "large": 3*MaxHead + 17} {
		for _, announced := range []bool{true, false} {
			want := bytes.Repeat([]byte("0123456789abcdef!"), size/17+1)[:size]
			c := newClient(t, Config{}, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("ETag", `"1"`)
				if !announced {
					_ = http.NewResponseController(w).Flush()
				}
				_, _ = w.Write(want)
			})
			body, rest, tag, err := c.Raw().ListPageIf(t.Context(), "clusters", nil, "", nil)
			if err != nil || tag != `"1"` || (rest != nil) != (size >= MaxHead) || len(body) != min(size, MaxHead) {
				t.Fatalf("%s: %d bytes, tag %q, a rest is %t: %v", name, len(body), tag, rest != nil, err)
			}
			if rest != nil {
				more, err := io.ReadAll(rest)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				body = append(body, more...)
				if err := rest.Close(); err != nil {
					t.Error(err)
				}
			}
			if !bytes.Equal(body, want) {
				t.Errorf("%s: got %d bytes, and others than were sent", name, len(body))
			}
		}
	}
}

// A slowBody returns its parts after a delay, and then fails or ends.
type slowBody struct {
	parts []part
}

type part struct {
	after time.Duration
	size  int
	err   error
}

func (b *slowBody) Read(p []byte) (int, error) {
	if len(b.parts) == 0 {
		return 0, io.EOF
	}
	next := &b.parts[0]
	time.Sleep(next.after)
	next.after = 0
	n := min(next.size, len(p))
	next.size -= n
	err := next.err
	if next.size > 0 {
		return n, nil
	}
	b.parts = b.parts[1:]
	return n, err
}

func (*slowBody) Close() error { return nil }

// answering is a transport that returns one body, and ends reads with the context.
type answering struct{ body *slowBody }

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{}, ContentLength: -1, Request: r,
		Body: struct {
			io.Reader
			io.Closer
		}{readerFunc(func(p []byte) (int, error) {
			n, err := a.body.Read(p)
			if r.Context().Err() != nil {
				return 0, r.Context().Err()
			}
			return n, err
		}), a.body},
	}, nil
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestRestTimeout: the timeout counts the time in which the server is waited for,
// the beginning of the page included, and not what the caller takes in between.
func TestRestTimeout(t *testing.T) {
	cases := map[string]struct {
		reason string
		parts  []part
		fails  error
	}{
		"InTime":   {reason: "nine seconds in all", parts: []part{{3 * time.Second, MaxHead, nil}, {3 * time.Second, 10, nil}, {3 * time.Second, 10, nil}}},
		"TooSlow":  {reason: "twelve seconds in all", parts: []part{{4 * time.Second, MaxHead, nil}, {4 * time.Second, 10, nil}, {4 * time.Second, 10, nil}}, fails: errTimeout},
		"CutShort": {reason: "an end too soon is no end", parts: []part{{0, MaxHead, nil}, {0, 10, io.ErrUnexpectedEOF}}, fails: io.ErrUnexpectedEOF},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, err := New(Config{
					Endpoint: "http://h", Timeout: 10 * time.Second,
					WrapTransport: func(http.RoundTripper) http.RoundTripper { return answering{&slowBody{tc.parts}} },
				})
				if err != nil {
					t.Fatal(err)
				}
				_, rest, _, err := c.Raw().ListPageIf(t.Context(), "clusters", nil, "", nil)
				if err != nil || rest == nil {
					t.Fatalf("%s: %v", tc.reason, err)
				}
				buf := make([]byte, 10)
				for err == nil {
					time.Sleep(time.Hour) // ours
					_, err = rest.Read(buf)
				}
				if tc.fails == nil && !errors.Is(err, io.EOF) || tc.fails != nil && (!errors.Is(err, tc.fails) || !errors.Is(err, ErrUnreachable)) {
					t.Errorf("%s: got %v, want %v", tc.reason, err, tc.fails)
				}
				if err := rest.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
