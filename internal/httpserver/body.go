package httpserver

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// limitBodyReadTime limits how long a request's body may take to arrive: net/http limits only the header,
// unless it limits the handler too. Reading for longer returns os.ErrDeadlineExceeded.
func limitBodyReadTime(next http.Handler, limit time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil && r.Body != http.NoBody {
			// Every connection of a server supports deadlines, so this does not fail.
			control := http.NewResponseController(w)
			_ = control.SetReadDeadline(time.Now().Add(limit))
			r.Body = &body{ReadCloser: r.Body, control: control}
		}
		next.ServeHTTP(w, r)
	})
}

// A body clears the deadline when it has been read. Otherwise the server would treat the client as
// gone when the deadline passes, even if the handler works normally.
type body struct {
	io.ReadCloser

	control *http.ResponseController
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		_ = b.control.SetReadDeadline(time.Time{}) // as in limitBodyReadTime
	}
	return n, err //nolint:wrapcheck // io.EOF must stay io.EOF
}
