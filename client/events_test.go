package client

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// An event is a test's copy of an event.
type event struct{ Type, Cursor, Data string }

// readAll reads a stream to its end and returns the final error.
func readAll(src io.Reader, limit int64) (all []event, err error) {
	r := newEventReader(src, limit)
	for {
		e, err := r.nextEvent()
		if err != nil {
			return all, err
		}
		all = append(all, event{string(e.Type), e.Cursor, string(e.Data)})
	}
}

func TestEventStream(t *testing.T) {
	t.Parallel()
	const whole = "event: changed\nid: c1\ndata: {}\n\n"
	one := []event{{"changed", "c1", "{}"}}
	cases := map[string]struct {
		reason string
		stream string
		want   []event
		err    error
	}{
		"Empty":           {"a server may end at once", "", nil, io.EOF},
		"LF":              {"as our own server writes", whole, one, io.EOF},
		"CRLF":            {"as others do", strings.ReplaceAll(whole, "\n", "\r\n"), one, io.EOF},
		"CR":              {"allowed, and must not wait for a line feed", strings.ReplaceAll(whole, "\n", "\r"), one, io.EOF},
		"Mixed":           {"line ends may differ from line to line", "event: changed\r\nid: c1\rdata: {}\n\r\n", one, io.EOF},
		"ByteOrderMark":   {"one may lead the stream", "\ufeff" + whole, one, io.EOF},
		"LateMark":        {"a second one is part of a name", "\ufeff\ufeff" + whole, []event{{"message", "c1", "{}"}}, io.EOF},
		"ManyDataLines":   {"they are one text", "data: a\ndata:\ndata: b\n\n", []event{{"message", "", "a\n\nb"}}, io.EOF},
		"Comments":        {"a proxy may send them to keep a stream alive", ": hello\n\n" + ":\n" + whole + ": bye\n", one, io.EOF},
		"NoColon":         {"a bare name has the empty value", "event: removed\nevent\nid: c1\nid\ndata\n\n", []event{{"message", "", ""}}, io.EOF},
		"OneSpace":        {"only the first space is not part of the value", "data:  a\n\ndata:b\n\n", []event{{"message", "", " a"}, {"message", "", "b"}}, io.EOF},
		"UnknownFields":   {"another version may send more", "retry: 5\nfoo: bar\nEvent: x\n" + whole, one, io.EOF},
		"NoData":          {"is no event, but its id holds", "event: removed\nid: c7\n\ndata: x\n\n", []event{{"message", "c7", "x"}}, io.EOF},
		"IDStays":         {"until another comes", whole + "event: bookmark\ndata: {}\n\n", append(one[:1:1], event{"bookmark", "c1", "{}"}), io.EOF},
		"NulInID":         {"such an id is ignored", "id: c0\nid: a\x00b\ndata: x\n\n", []event{{"message", "c0", "x"}}, io.EOF},
		"UnknownType":     {"the caller's to judge", "event: pruned\ndata: x\n\n", []event{{"pruned", "", "x"}}, io.EOF},
		"CutInField":      {"half an event is none", whole + "event: chan", one, io.ErrUnexpectedEOF},
		"CutAfterField":   {"also between two lines", whole + "event: changed\n", one, io.ErrUnexpectedEOF},
		"CutBeforeBlank":  {"also when only the blank line lacks", whole + strings.TrimSuffix(whole, "\n"), one, io.ErrUnexpectedEOF},
		"LongLine":        {"over the bound", "data: " + strings.Repeat("x", 100) + "\n\n", nil, errTooLarge},
		"LongLineNoEnd":   {"over the bound, without waiting for its end", "data: " + strings.Repeat("x", 100), nil, errTooLarge},
		"ManyLinesTooBig": {"the bound is the event's", strings.Repeat("data: xxxxxxxxx\n", 10) + "\n", nil, errTooLarge},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for way, src := range map[string]io.Reader{
				"at once": strings.NewReader(tc.stream), "byte by byte": iotest.OneByteReader(strings.NewReader(tc.stream)),
				"in halves": iotest.HalfReader(strings.NewReader(tc.stream)), "with its end": iotest.DataErrReader(strings.NewReader(tc.stream)),
			} {
				got, err := readAll(src, 64)
				if diff := cmp.Diff(tc.want, got); diff != "" || !errors.Is(err, tc.err) {
					t.Errorf("%s, read %s: ended with %v, want %v; events -want +got:\n%s", tc.reason, way, err, tc.err, diff)
				}
			}
		})
	}
}

// TestLoneCRNeedsNoMore: an event whose last line ends with CR is there,
// although a line feed might follow.
func TestLoneCRNeedsNoMore(t *testing.T) {
	t.Parallel()
	src, w := io.Pipe()
	defer func() { _ = src.Close() }()
	go func() { _, _ = io.WriteString(w, "data: x\r\r") }()
	if e, err := newEventReader(src, 100).nextEvent(); err != nil || string(e.Data) != "x" {
		t.Errorf("got %+v, %v", e, err)
	}
}

// TestKeptCursors: unlike data, a cursor may be kept.
func TestKeptCursors(t *testing.T) {
	t.Parallel()
	var stream strings.Builder
	var want []string
	for i := range 2000 {
		id := strings.Repeat(string(rune('a'+i%26)), 1+i%600)
		want = append(want, id)
		stream.WriteString("id: " + id + "\ndata: x\n\n")
	}
	r := newEventReader(strings.NewReader(stream.String()), 1000)
	var got []string
	for {
		e, err := r.nextEvent()
		if err != nil {
			break
		}
		got = append(got, e.Cursor)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("cursors -want +got:\n%s", diff)
	}
}

// An endless reader repeats a text.
type endless struct {
	text string
	at   int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.text[e.at:])
	e.at = (e.at + n) % len(e.text)
	return n, nil
}

func TestEventsCostNoAllocation(t *testing.T) {
	src := &endless{text: "event: changed\nid: djEuMTIz\ndata: " + strings.Repeat("x", 700) + "\n\nevent: bookmark\nid: djEuMTI0\ndata: {}\n\n"}
	r := newEventReader(src, 1<<20)
	if n := testing.AllocsPerRun(10_000, func() {
		if _, err := r.nextEvent(); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations an event", n)
	}
}

func BenchmarkEvents(b *testing.B) {
	text := "event: changed\nid: djEuMTIz\ndata: " + strings.Repeat("x", 700) + "\n\n"
	r := newEventReader(&endless{text: text}, 1<<20)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.nextEvent(); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzEvents holds the reader against the standard's own algorithm, written
// down as plainly as it is described.
func FuzzEvents(f *testing.F) {
	for _, seed := range []string{
		"event: changed\r\nid: 1\r\ndata: {}\r\n\r\n", "\ufeffdata\rdata: a\r\rid:\x00\n\n", ": x\n\n\ndata:y", "event:removed\n\ndata\n\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, stream string) {
		want, cut := plainEvents(stream)
		for _, src := range []io.Reader{strings.NewReader(stream), iotest.OneByteReader(strings.NewReader(stream))} {
			got, err := readAll(src, 1<<20)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("events of %q -want +got:\n%s", stream, diff)
			}
			if errors.Is(err, io.EOF) == cut {
				t.Fatalf("%q ended with %v, cut %t", stream, err, cut)
			}
		}
	})
}

func plainEvents(stream string) (all []event, cut bool) {
	stream = strings.ReplaceAll(strings.TrimPrefix(stream, "\ufeff"), "\r\n", "\n")
	lines := strings.Split(strings.ReplaceAll(stream, "\r", "\n"), "\n")
	var e event
	var data []string
	open := false
	for _, line := range lines[:len(lines)-1] {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			if e.Data = strings.Join(data, "\n"); data != nil {
				if e.Type == "" {
					e.Type = string(v1.WatchEventType("message"))
				}
				all = append(all, e)
			}
			e.Type, data, open = "", nil, false
			continue
		case name == "event":
			e.Type = value
		case name == "data":
			data = append(data, value)
		case name == "id" && !strings.Contains(value, "\x00"):
			e.Cursor = value
		}
		open = open || name != ""
	}
	return all, open || lines[len(lines)-1] != ""
}
