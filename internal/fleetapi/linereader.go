package fleetapi

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/fleetloop/fleetloop/internal/fleetapi/rest"
)

const (
	// lineTimeout is the maximum time a client may take to send one line.
	lineTimeout = 30 * time.Second
	// answerTimeout is the maximum time a client may take to receive an answer that took long to make.
	answerTimeout = time.Minute
)

// A lineReader reads a body of any length line by line. Each line has its own read deadline, so a
// long load may take as long as it needs, but a stalled client is cut off.
type lineReader struct {
	src     *bufio.Reader
	control *http.ResponseController
	maxLine int64 // in bytes
	line    []byte
	number  int // of the last line read, from 1
	// deadlineFor is the number of the line whose deadline is running, 0 for none.
	deadlineFor int
	ended       bool
}

func newLineReader(w http.ResponseWriter, body io.Reader, maxLineBytes int64) *lineReader {
	l := &lineReader{control: http.NewResponseController(w), maxLine: maxLineBytes}
	l.src = bufio.NewReaderSize(deadlineReader{body, l}, 64<<10)
	// The server's deadline for a request is meant for requests of bounded size, and over HTTP/2 it ends the request.
	_ = l.control.SetWriteDeadline(time.Time{}) // every connection of a server has deadlines
	return l
}

// deadlineReader reads under the deadline of the current line.
type deadlineReader struct {
	src   io.Reader
	lines *lineReader
}

// Read implements io.Reader.
func (t deadlineReader) Read(p []byte) (int, error) {
	next := t.lines.number + 1
	if t.lines.deadlineFor != next {
		t.lines.deadlineFor = next
		_ = t.lines.control.SetReadDeadline(time.Now().Add(lineTimeout))
	}
	return t.src.Read(p)
}

// readLine returns the next line, which is valid until the following call. The last line may lack a newline.
func (l *lineReader) readLine() (line []byte, err error) {
	l.line = l.line[:0]
	for {
		part, err := l.src.ReadSlice('\n')
		l.line = append(l.line, part...)
		switch {
		case int64(len(bytes.TrimRight(l.line, "\r\n"))) > l.maxLine:
			l.number++
			return nil, rest.NewError(rest.CodeBodyTooLarge, "the line is larger than %d bytes", l.maxLine)
		case errors.Is(err, bufio.ErrBufferFull): // the line goes on
			continue
		case errors.Is(err, io.EOF):
			l.ended = true
			if len(l.line) == 0 {
				return nil, io.EOF
			}
		case err != nil:
			l.number++
			return nil, rest.NewError(rest.CodeInvalidBody, "the fleet API could not read the whole line; send the request again")
		}
		l.number++
		return l.line, nil
	}
}

// clearReadDeadline removes the deadline while nothing is read: the client does not pay for the server's work.
func (l *lineReader) clearReadDeadline() {
	l.deadlineFor = 0
	_ = l.control.SetReadDeadline(time.Time{})
}

// setFinalDeadlines leaves time for an answer, and none for any rest of the body.
func (l *lineReader) setFinalDeadlines() {
	now := time.Now()
	_ = l.control.SetWriteDeadline(now.Add(answerTimeout))
	if !l.ended {
		_ = l.control.SetReadDeadline(now.Add(time.Second))
		return
	}
	_ = l.control.SetReadDeadline(time.Time{})
}
