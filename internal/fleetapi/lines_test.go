package fleetapi

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/fleetapi/rest"
)

func TestLineReader(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100)
	cases := map[string]struct {
		reason string
		body   string
		want   []string
		code   rest.Code
	}{
		"Empty":       {"no lines", "", nil, ""},
		"EndOfLine":   {"an end of line after the last makes no other", "a\nb\n", []string{"a", "b"}, ""},
		"NoEnd":       {"the last needs none", "a\r\nb", []string{"a", "b"}, ""},
		"Blank":       {"they count", "\n\na", []string{"", "", "a"}, ""},
		"AtTheLimit":  {"the end of the line is not part of it", long + "\r\n" + long, []string{long, long}, ""},
		"OverLimit":   {"a line is bounded", "a\n" + long + "x\nb\n", []string{"a"}, rest.CodeBodyTooLarge},
		"Unbounded":   {"without being read to its end", strings.Repeat(long, 10_000), nil, rest.CodeBodyTooLarge},
		"LongBatches": {"longer than any buffer, in short lines", strings.Repeat("abc\n", 100_000), strings.Split(strings.Repeat("abc ", 100_000), " ")[:100_000], ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLineReader(nopWriter{}, strings.NewReader(tc.body), 100)
			var got []string
			for {
				line, err := l.readLine()
				if p, ok := errors.AsType[*rest.Error](err); ok && p.Code == tc.code && l.number == len(got)+1 {
					break
				}
				if errors.Is(err, io.EOF) && tc.code == "" {
					break
				}
				if err != nil {
					t.Fatalf("%s: line %d: %v", tc.reason, l.number, err)
				}
				got = append(got, string(bytes.TrimRight(line, "\r\n")))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// nopWriter is a response without a connection.
type nopWriter struct{ http.ResponseWriter }

// TestLineReaderCutsOff checks that a client may be slow, but not stall.
func TestLineReaderCutsOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		type result struct {
			lines int
			took  time.Duration
			err   error
		}
		results := make(chan result, 1)
		server := &http.Server{ReadTimeout: time.Second, WriteTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			began := time.Now()
			lines := newLineReader(w, r.Body, 1000)
			defer lines.setFinalDeadlines()
			var res result
			for {
				if _, res.err = lines.readLine(); res.err != nil {
					break
				}
				if res.lines++; res.lines == 5 {
					lines.clearReadDeadline()
					time.Sleep(time.Hour) // the time of the database does not count
				}
			}
			res.took = time.Since(began)
			results <- res
			w.WriteHeader(http.StatusTeapot)
		})}
		listener := &oneConn{conn: make(chan net.Conn, 1), done: make(chan struct{})}
		listener.conn <- far
		go func() { _ = server.Serve(listener) }()
		go func() {
			_, _ = io.WriteString(near, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
			for range 10 {
				time.Sleep(lineTimeout - time.Second)
				_, _ = io.WriteString(near, "{}\n")
			}
		}()
		answer := make([]byte, 12)
		if _, err := io.ReadFull(near, answer); err != nil || string(answer) != "HTTP/1.1 418" {
			t.Errorf("answered %q, %v", answer, err)
		}
		_ = near.Close()
		got := <-results
		if p, ok := errors.AsType[*rest.Error](got.err); !ok || p.Code != rest.CodeInvalidBody || got.lines != 10 {
			t.Errorf("%d lines, then %v, want 10 and a problem", got.lines, got.err)
		}
		if want := time.Hour + 9*(lineTimeout-time.Second) + lineTimeout; got.took != want {
			t.Errorf("took %s, want %s", got.took, want)
		}
		_ = server.Close()
	})
}

// oneConn is a listener of one connection, which Accept returns once.
type oneConn struct {
	conn chan net.Conn
	done chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *oneConn) Close() error   { close(l.done); return nil }
func (l *oneConn) Addr() net.Addr { return &net.UnixAddr{Name: "memory"} }
