package source_test

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/sentinel/source"
)

// TestStreamIsAPage checks that a page gives the same result wherever it is divided.
func TestStreamIsAPage(t *testing.T) {
	for _, page := range []string{
		`{"items":[{"id":"a","labels":{"x":"y"}},{"id":"b","status":{"conditions":[{"type":"Ready","status":"True"}]}}],"cursor":"c\u0031","total":9}`,
		`{"removed":["x","y\u0031",null,{}],"more":true,"continue":"x\/y","items":[ {"id":"b"} , 7,{"id":"a"}]}`,
		`[{"id":"a"},{"id":"a"}]`, `{"items":null}`, `[]`, " [ ] ",
		`{"items":7}`, `{"code":"E"}`, `"text"`, `{"items":[{"id":"a"}`, `[{"id":"\x"}]`, `[]x`, ``, `{"items":[{"id":"a"}{"id":"b"}]}`,
	} {
		wantItems, wantEnv, wantErr := scanAll(t, page)
		for cut := range len(page) + 1 {
			gotItems, env, err := streamAll([]byte(page[:cut]), iotest.OneByteReader(strings.NewReader(page[cut:])))
			if (err == nil) != (wantErr == nil) {
				t.Errorf("%s cut at %d: err %v, want %v", page, cut, err, wantErr)
			}
			if diff := cmp.Diff(wantItems, gotItems); diff != "" {
				t.Errorf("%s cut at %d: -want +got\n%s", page, cut, diff)
			}
			if diff := cmp.Diff(wantEnv, env); diff != "" && err == nil {
				t.Errorf("%s cut at %d: -want +got\n%s", page, cut, diff)
			}
		}
	}
}

// wantStream checks that a page in two parts gives the same items as the whole page.
func wantStream(t *testing.T, page []byte) {
	t.Helper()
	var want []scannedItem
	wantEnv, wantErr := source.NewScanner(true).ScanPage(page, func(it *source.Item) error {
		want = append(want, copyOf(it))
		return nil
	})
	got, env, err := streamAll(page[:len(page)/2], bytes.NewReader(page[len(page)/2:]))
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("%q: err %v in two parts, %v as a whole", page, err, wantErr)
	}
	if diff := cmp.Diff(want, got); diff != "" && err == nil {
		t.Fatalf("%q: -want +got\n%s", page, diff)
	}
	if diff := cmp.Diff(wantEnv, env); diff != "" && err == nil {
		t.Fatalf("%q: -want +got\n%s", page, diff)
	}
}

// streamAll returns copies of all items, as scanAll does.
func streamAll(head []byte, rest io.Reader) (items []scannedItem, env source.Envelope, err error) {
	env, err = source.NewScanner(true).ScanPageStream(head, rest, func(it *source.Item) error {
		items = append(items, copyOf(it))
		return nil
	})
	return items, env, err
}

func TestStreamStops(t *testing.T) {
	stop, cut := errors.New("enough"), errors.New("the connection is gone")
	_, err := source.NewScanner(false).ScanPageStream(nil, strings.NewReader(`[{"id":"a"},{"id":"b"}]`),
		func(*source.Item) error { return stop })
	if !errors.Is(err, stop) {
		t.Errorf("the visitor's error is %v", err)
	}
	n := 0
	_, err = source.NewScanner(false).ScanPageStream([]byte(`[{"id":"a"},`), iotest.ErrReader(cut),
		func(*source.Item) error { n++; return nil })
	if !errors.Is(err, cut) || n != 1 {
		t.Errorf("%d items, the reader's error is %v", n, err)
	}
	endless := endlessText{}
	if _, err := source.NewScanner(false).ScanPageStream([]byte(`[{"id":"`), endless, func(*source.Item) error { return nil }); err == nil {
		t.Error("a resource without end is no error")
	}
}

type endlessText struct{}

func (endlessText) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// TestStreamTakesNoMemory checks that the memory for a page is independent of its length: all
// allocations, and not only the live memory.
func TestStreamTakesNoMemory(t *testing.T) {
	const n, most = 30_000, 1 << 20
	item := []byte(`{"id":"cls-000001","generation":1,"spec":{"filler":"` + strings.Repeat("x", 2000) + `"},"status":{"phase":"Ready","observed_generation":1}},`)
	rest := &repeated{text: item, left: n * len(item), end: []byte(`{"id":"last"}]`)}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	env, err := source.NewScanner(false).ScanPageStream([]byte(`[`), rest, func(*source.Item) error { return nil })
	runtime.ReadMemStats(&after)
	if err != nil || env.Items != n+1 || string(env.Last) != "last" {
		t.Fatalf("%d items, the last is %q: %v", env.Items, env.Last, err)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > most {
		t.Errorf("%d MB took %d bytes, want %d at most", n*len(item)>>20, got, most)
	}
}

// A repeated reader repeats a text, and then ends.
type repeated struct {
	text, end []byte
	at, left  int
}

func (r *repeated) Read(p []byte) (int, error) {
	if r.left == 0 {
		n := copy(p, r.end)
		r.end = r.end[n:]
		if n == 0 {
			return 0, io.EOF
		}
		return n, nil
	}
	n := copy(p[:min(len(p), r.left)], r.text[r.at:])
	r.at = (r.at + n) % len(r.text)
	r.left -= n
	return n, nil
}

func TestHasNoLabels(t *testing.T) {
	for page, want := range map[string][2]bool{ // as a whole, and as a beginning
		`[]`:                                     {true, true},
		`[{"id":"a"},{"id":"b","labels":{}}]`:    {false, false},
		`[{"id":"a","labels":null}]`:             {false, false},
		`[{"id":"a","metadata":{"labels":{}}}]`:  {false, false},
		`[{"id":"a","spec":{"labels":{"a":1}}}]`: {true, true},
		`[{"id":"labels"},{"name":"labels"}]`:    {true, true},
		`{"labels":{},"items":[{"id":"a"}]}`:     {true, true},
		`[{"id":"a","labels":{}},{"id":`:         {false, false},
		`[{"id":"a"},{"id":"b","labels"`:         {false, true},
		`[{"id":"a"}`:                            {false, true},
	} {
		if got := [2]bool{source.HasNoLabels([]byte(page), true), source.HasNoLabels([]byte(page), false)}; got != want {
			t.Errorf("%s: got %t", page, got)
		}
	}
}
