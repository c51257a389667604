package client

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// An eventReader reads server-sent events as the HTML standard describes them (section "Interpreting an event stream"),
// with two differences. An event that is truncated by the end of the stream is an error instead of nothing. The field
// retry is ignored, because the caller has its own backoff.
type eventReader struct {
	src   *bufio.Reader
	limit int64

	begun   bool // the byte order mark can no longer come
	afterCR bool // a following line feed belongs to the previous line

	line    []byte
	data    []byte // of the current event
	kind    v1.WatchEventType
	hasData bool
	open    bool // a line of the event has been read

	cursor  string // the last id; it is valid until the next one
	cursors strings.Builder
}

func newEventReader(src io.Reader, limit int64) *eventReader {
	return &eventReader{src: bufio.NewReaderSize(src, 64<<10), limit: limit}
}

// nextEvent returns the next event with data; its Data is valid until the next call. It returns
// io.EOF between two events, and io.ErrUnexpectedEOF within one.
func (r *eventReader) nextEvent() (v1.WatchEvent, error) {
	r.resetEvent()
	for {
		line, err := r.readLine()
		if err != nil {
			if errors.Is(err, io.EOF) && (r.open || len(line) > 0) {
				err = io.ErrUnexpectedEOF
			}
			return v1.WatchEvent{}, err
		}
		if len(line) > 0 {
			if err := r.parseField(line); err != nil {
				return v1.WatchEvent{}, err
			}
			continue
		}
		if r.hasData {
			return v1.WatchEvent{Type: r.kind, Cursor: r.cursor, Data: r.data}, nil
		}
		r.resetEvent()
	}
}

func (r *eventReader) resetEvent() {
	r.data, r.kind, r.hasData, r.open = r.data[:0], "message", false, false
}

// parseField processes one non-empty line.
func (r *eventReader) parseField(line []byte) error {
	name, value, _ := bytes.Cut(line, []byte{':'})
	if len(name) == 0 {
		return nil // a comment
	}
	r.open = true
	value = bytes.TrimPrefix(value, []byte{' '})
	switch string(name) {
	case "event":
		r.kind = eventType(value)
	case "data":
		if r.hasData {
			r.data = append(r.data, '\n')
		}
		r.data, r.hasData = append(r.data, value...), true
		if int64(len(r.data)) > r.limit {
			return errTooLarge
		}
	case "id":
		if bytes.IndexByte(value, 0) < 0 {
			r.setCursor(value)
		}
	}
	return nil
}

// eventType avoids an allocation for the known names.
func eventType(eventField []byte) v1.WatchEventType {
	for _, known := range [...]v1.WatchEventType{v1.WatchChanged, v1.WatchRemoved, v1.WatchBookmark} {
		if string(eventField) == string(known) {
			return known
		}
	}
	if len(eventField) == 0 {
		return "message"
	}
	return v1.WatchEventType(eventField)
}

// setCursor stores an id. Cursors are slices of blocks that are never written again, so that
// callers may keep them and most need no allocation.
func (r *eventReader) setCursor(value []byte) {
	const block = 4 << 10
	if string(value) == r.cursor {
		return
	}
	if len(value) > block/8 {
		r.cursor = string(value)
		return
	}
	if r.cursors.Cap()-r.cursors.Len() < len(value) {
		r.cursors = strings.Builder{}
		r.cursors.Grow(block)
	}
	start := r.cursors.Len()
	r.cursors.Write(value)
	r.cursor = r.cursors.String()[start:]
}

// readLine returns the next line without its end, which is a line feed, a carriage return, or both.
// It is valid until the next call. With an error it returns the partial line.
func (r *eventReader) readLine() ([]byte, error) {
	r.line = r.line[:0]
	for {
		if _, err := r.src.Peek(1); err != nil {
			return r.line, err
		}
		chunk, _ := r.src.Peek(r.src.Buffered())
		if r.afterCR {
			r.afterCR = false
			if chunk[0] == '\n' {
				_, _ = r.src.Discard(1)
				continue
			}
		}
		end := lineEnd(chunk)
		used := end
		if end < 0 {
			end, used = len(chunk), len(chunk)
		} else {
			r.afterCR = chunk[end] == '\r'
			used++
		}
		ended := used > end
		r.line = append(r.line, chunk[:end]...)
		_, _ = r.src.Discard(used)
		switch {
		case int64(len(r.line)) > r.limit:
			return nil, errTooLarge
		case ended:
			return r.lineWithoutBOM(), nil
		}
	}
}

func lineEnd(chunk []byte) int {
	lf := bytes.IndexByte(chunk, '\n')
	if lf >= 0 {
		chunk = chunk[:lf]
	}
	if cr := bytes.IndexByte(chunk, '\r'); cr >= 0 {
		return cr
	}
	return lf
}

// lineWithoutBOM returns the line without the byte order mark with which the first line of the stream may begin.
func (r *eventReader) lineWithoutBOM() []byte {
	if r.begun {
		return r.line
	}
	r.begun = true
	return bytes.TrimPrefix(r.line, []byte("\xef\xbb\xbf"))
}
