package client

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// countLines responds with the number of received lines.
func countLines(w http.ResponseWriter, r *http.Request) {
	var n int64
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		n++
	}
	writeJSON(w, http.StatusOK, v1.LoadResult{Created: n, Skipped: int64(len(r.URL.Query().Get("if_exists")))})
}

func TestLoad(t *testing.T) {
	t.Parallel()
	c := newClient(t, Config{Token: StaticToken("s3cret")}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != v1.BasePath+"/clusters/bulk" || r.Header.Get("Content-Type") != v1.ContentTypeNDJSON || r.Header.Get("Authorization") != "Bearer s3cret" {
			t.Errorf("asked for %s with %v", r.URL, r.Header)
		}
		countLines(w, r)
	})
	got, err := c.Clusters().Load(t.Context(), strings.NewReader("{}\n{}\n{}"), LoadOptions{})
	if got.Created != 3 || got.Skipped != 0 || err != nil {
		t.Errorf("got %+v, %v", got, err)
	}
	got, err = c.Clusters().Load(t.Context(), strings.NewReader("{}\n"), LoadOptions{SkipExisting: true})
	if got.Created != 1 || got.Skipped != int64(len("skip")) || err != nil {
		t.Errorf("with skip: got %+v, %v", got, err)
	}
}

// TestLoadRefusedMidway: the server's reason comes through although most of
// the lines were never sent.
func TestLoadRefusedMidway(t *testing.T) {
	t.Parallel()
	c := newClient(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.CopyN(io.Discard, r.Body, 1000)
		writeJSON(w, http.StatusConflict, v1.Problem{Code: "name_taken", Detail: "line 7: there is one", Loaded: &v1.LoadResult{Created: 5, Skipped: 1}})
	})
	got, err := c.Clusters().Load(t.Context(), &endless{text: "{}\n"}, LoadOptions{})
	if !IsConflict(err) || got.Created != 5 || got.Skipped != 1 || !strings.Contains(err.Error(), "line 7") {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestLoadFails(t *testing.T) {
	t.Parallel()
	broken := errors.New("disk on fire")
	cases := map[string]struct {
		reason string
		lines  io.Reader
		serve  http.HandlerFunc
		want   error
	}{
		"Lines":    {"the caller's own error comes through", io.MultiReader(strings.NewReader("{}\n"), failing{broken}), countLines, broken},
		"HungUp":   {"what was created is not known", &endless{text: "{}\n"}, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, ErrUnreachable},
		"NoResult": {"a proxy's page is no answer", strings.NewReader(""), func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Type", "text/html") }, ErrInvalidResponse},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClient(t, Config{}, tc.serve)
			if got, err := c.Clusters().Load(t.Context(), tc.lines, LoadOptions{}); got.Created != 0 || !errors.Is(err, tc.want) {
				t.Errorf("%s: got %+v, %v, want %v", tc.reason, got, err, tc.want)
			}
		})
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// TestLoadTakesARotatedToken: a token that is refused costs no lines.
func TestLoadTakesARotatedToken(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	write(t, file, "old")
	c := newClient(t, Config{Token: FileToken(file)}, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer new" {
			write(t, file, "new")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		countLines(w, r)
	})
	if got, err := c.Clusters().Load(t.Context(), strings.NewReader("{}\n{}\n"), LoadOptions{}); got.Created != 2 || err != nil {
		t.Errorf("got %+v, %v", got, err)
	}
}

// TestLoadDoesNotSendHalf: once lines are gone, another try would create half
// a fleet and call it done.
func TestLoadDoesNotSendHalf(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	write(t, file, "old")
	asked := 0
	c := newClient(t, Config{Token: FileToken(file)}, func(w http.ResponseWriter, r *http.Request) {
		asked++
		_, _ = io.ReadAll(r.Body)
		write(t, file, "new")
		w.WriteHeader(http.StatusUnauthorized)
	})
	if _, err := c.Clusters().Load(t.Context(), strings.NewReader("{}\n"), LoadOptions{}); !IsUnauthorized(err) || asked != 1 {
		t.Errorf("got %v after %d requests, want the refusal of the first", err, asked)
	}
}

func TestLoadBoundsTheServerAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newNearby(t, Config{}, countLines)
		src, dst := io.Pipe()
		go func() {
			for range 3 {
				time.Sleep(time.Hour) // whoever makes the lines may think
				_, _ = io.WriteString(dst, "{}\n")
			}
			_ = dst.Close()
		}()
		if got, err := c.Clusters().Load(t.Context(), src, LoadOptions{}); got.Created != 3 || err != nil {
			t.Errorf("got %+v, %v", got, err)
		}
	})
	for name, taken := range map[string]int64{"TakesNothing": 0, "StopsTaking": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newNearby(t, Config{}, func(_ http.ResponseWriter, r *http.Request) {
					_, _ = io.CopyN(io.Discard, r.Body, taken)
					<-t.Context().Done()
				})
				begun := time.Now()
				_, err := c.Clusters().Load(t.Context(), &endless{text: "{}\n"}, LoadOptions{})
				if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "accepted no data for 1m0s") || time.Since(begun) > 70*time.Second {
					t.Errorf("got %v after %s", err, time.Since(begun))
				}
			})
		})
	}
}

func TestLoadStopsWithItsCaller(t *testing.T) {
	t.Parallel()
	c := newClient(t, Config{}, countLines)
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	lines := &endless{text: "{}\n"}
	time.AfterFunc(50*time.Millisecond, func() { cancel(why) })
	if _, err := c.Clusters().Load(ctx, lines, LoadOptions{}); !errors.Is(err, why) || errors.Is(err, ErrUnreachable) {
		t.Errorf("got %v, want the caller's own cause", err)
	}
}
