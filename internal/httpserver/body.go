package httpserver

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// boundBody bounds how long a request's body may take to arrive: net/http
// bounds the header alone, unless it is to bound the handler too. Reading for
// longer gives os.ErrDeadlineExceeded.
func boundBody(next http.Handler, bound time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil && r.Body != http.NoBody {
			// Every connection of a server has deadlines, so there is no error.
			control := http.NewResponseController(w)
			_ = control.SetReadDeadline(time.Now().Add(bound))
			r.Body = &body{ReadCloser: r.Body, control: control}
		}
		next.ServeHTTP(w, r)
	})
}

// A body lifts the deadline when it has been read. If it stayed, the server
// would take the client for gone when it passes, however well the handler is.
type body struct {
	io.ReadCloser

	control *http.ResponseController
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		_ = b.control.SetReadDeadline(time.Time{}) // as in boundBody
	}
	return n, err //nolint:wrapcheck // io.EOF must stay io.EOF
}
