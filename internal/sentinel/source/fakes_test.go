package source_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/fleetloop/fleetloop/internal/selector"
	"github.com/fleetloop/fleetloop/internal/sentinel/source"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errDown = errors.New("it is down")

// A statusError is a refusal as a client reports it.
type statusError struct {
	code int
	text string
}

func (e statusError) Error() string   { return fmt.Sprintf("GET: %d %s", e.code, e.text) }
func (e statusError) StatusCode() int { return e.code }

// A fakeLister responds with the result of a function. The tag of a page is its body, unless
// untagged.
type fakeLister struct {
	answer   func(path string, q url.Values) (string, error)
	untagged bool

	// head is how much of a page comes at once, 0 for all of it; open counts the
	// rests that are not closed yet.
	head, open int

	mu    sync.Mutex
	calls []string // path?query, and the number of bytes that came
	sent  int
}

func (s *fakeLister) ListPage(ctx context.Context, path string, q url.Values, dst []byte) ([]byte, error) {
	body, rest, _, err := s.ListPageIf(ctx, path, q, "", dst)
	if err != nil || rest == nil {
		return body, err
	}
	more, err := io.ReadAll(rest)
	return append(body, more...), errors.Join(err, rest.Close())
}

func (s *fakeLister) ListPageIf(ctx context.Context, path string, q url.Values, etag string, dst []byte) ([]byte, io.ReadCloser, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, path+"?"+q.Encode())
	if ctx.Err() != nil {
		return nil, nil, "", ctx.Err()
	}
	body, err := s.answer(path, q)
	if err != nil {
		return nil, nil, "", err
	}
	tag := strconv.Quote(body)
	if s.untagged {
		tag = ""
	}
	if tag != "" && tag == etag {
		return dst[:0], nil, tag, nil
	}
	s.sent += len(body)
	if s.head > 0 && len(body) > s.head {
		s.open++
		return append(dst[:0], body[:s.head]...), &pageRest{strings.NewReader(body[s.head:]), s}, tag, nil
	}
	return append(dst[:0], body...), nil, tag, nil
}

// A pageRest is the second part of a page.
type pageRest struct {
	io.Reader
	source *fakeLister
}

func (r *pageRest) Close() error {
	r.source.mu.Lock()
	defer r.source.mu.Unlock()
	r.source.open--
	r.Reader = strings.NewReader("read after it was closed")
	return nil
}

// wantClosed checks that all pages were closed.
func (s *fakeLister) wantClosed(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open != 0 {
		t.Errorf("%d pages are still open", s.open)
	}
}

// requests returns and clears the requests so far.
func (s *fakeLister) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls, s.sent = nil, 0
	return calls
}

// A fleet is a server of the Fleetloop flavour.
type fleet struct {
	ids    []string
	labels map[string]string // region by id
	tokens bool              // limit and continue
	most   int               // largest page
	batch  bool              // ids=
}

func newFleet(n int) *fleet {
	f := &fleet{tokens: true, most: 500, batch: true, labels: map[string]string{}}
	for i := range n {
		f.ids = append(f.ids, fmt.Sprintf("r%05d", i))
	}
	return f
}

func (f *fleet) item(id string) string {
	return fmt.Sprintf(`{"id":%q,"generation":1,"labels":{"region":%q}}`, id, f.labels[id])
}

func (f *fleet) items(ids []string) string {
	items := make([]string, len(ids))
	for i, id := range ids {
		items[i] = f.item(id)
	}
	return "[" + strings.Join(items, ",") + "]"
}

func (f *fleet) answer(path string, q url.Values) (string, error) {
	if _, escaped, one := strings.Cut(path, "/"); one {
		id, err := url.PathUnescape(escaped)
		if err != nil {
			return "", err
		}
		if !slices.Contains(f.ids, id) {
			return "", statusError{http.StatusNotFound, "Not Found"}
		}
		return f.item(id), nil
	}
	if ids := q.Get("ids"); f.batch && ids != "" {
		asked := strings.Split(ids, ",")
		found := slices.DeleteFunc(slices.Clone(f.ids), func(id string) bool { return !slices.Contains(asked, id) })
		return fmt.Sprintf(`{"items":%s,"size":%d}`, f.items(found), len(found)), nil
	}
	sel, err := selector.Parse(q.Get("labels"))
	if err != nil {
		return "", statusError{http.StatusBadRequest, err.Error()}
	}
	all := slices.DeleteFunc(slices.Clone(f.ids), func(id string) bool { return !sel.Matches(selector.Map{"region": f.labels[id]}) })
	if limit, err := strconv.Atoi(q.Get("limit")); f.tokens && err == nil {
		from, _ := slices.BinarySearch(all, q.Get("continue")+"\x00")
		to := min(len(all), from+min(limit, f.most))
		next := ""
		if to < len(all) {
			next = fmt.Sprintf(`,"continue":%q`, all[to-1])
		}
		return fmt.Sprintf(`{"items":%s,"size":%d,"cursor":"c1"%s}`, f.items(all[from:to]), to-from, next), nil
	}
	page, size := 1, 20
	if n, err := strconv.Atoi(q.Get("page")); err == nil {
		page = n
	}
	if n, err := strconv.Atoi(q.Get("size")); err == nil {
		size = n
	}
	size = min(size, f.most)
	from := min((page-1)*size, len(all))
	to := min(len(all), from+size)
	return fmt.Sprintf(`{"items":%s,"page":%d,"size":%d,"total":%d}`, f.items(all[from:to]), page, to-from, len(all)), nil
}

// A pageReader reads pages, and stores the ids since the last start of the list.
type pageReader struct {
	seen      []string
	again     int // how often it began
	unchanged int // items of pages that had not changed
	fail      func(source.Page) error
	scanner   *source.Scanner
}

func (r *pageReader) read(pg source.Page) (source.Envelope, error) {
	if r.scanner == nil {
		r.scanner = source.NewScanner(false)
	}
	if pg.First {
		r.seen = nil
		r.again++
	}
	if r.fail != nil {
		if err := r.fail(pg); err != nil {
			return source.Envelope{}, err
		}
	}
	if pg.Unchanged {
		r.unchanged += pg.Items
		return source.Envelope{}, nil
	}
	return pg.ScanItems(r.scanner, func(it *source.Item) error {
		r.seen = append(r.seen, string(it.ID))
		return nil
	})
}

// wantOnce checks that every id was seen exactly once.
func (r *pageReader) wantOnce(t *testing.T, when string, ids []string) {
	t.Helper()
	got := slices.Sorted(slices.Values(r.seen))
	want := slices.Sorted(slices.Values(ids))
	if !slices.Equal(got, want) {
		t.Errorf("%s: saw %d, want %d, each once", when, len(got), len(want))
	}
}

func mustParse(t *testing.T, text string) selector.Selector {
	t.Helper()
	sel, err := selector.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return sel
}

// serve returns the URL of a server with the handler h.
func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}
