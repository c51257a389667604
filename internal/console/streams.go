package console

import (
	"context"
	"io"
	"net/http"
)

// streams holds the answers that last until they are ended.
type streams struct {
	ended context.Context //nolint:containedctx // of all streams
	end   context.CancelFunc
}

func newStreams() *streams {
	ended, end := context.WithCancel(context.Background())
	return &streams{ended: ended, end: end}
}

// EndStreams ends all streams properly, so that they do not delay the end of the server. Browsers
// connect again.
func (c *Console) EndStreams() { c.streams.end() }

func (c *Console) cancelFollowRequestsOnStreamsEnd(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("follow") == "true" {
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			defer context.AfterFunc(c.streams.ended, cancel)() //nolint:contextcheck // either of the two ends it
			r = r.WithContext(ctx)
		}
		next.ServeHTTP(w, r)
	})
}

func (s *streams) closeBodyOnStreamsEnd(body io.ReadCloser) io.ReadCloser {
	t := &trackedBody{ReadCloser: body, streams: s}
	t.stop = context.AfterFunc(s.ended, func() { _ = body.Close() })
	return t
}

type trackedBody struct {
	io.ReadCloser

	streams *streams
	stop    func() bool
}

func (t *trackedBody) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	if err != nil && t.streams.ended.Err() != nil {
		err = io.EOF
	}
	return n, err //nolint:wrapcheck // io.EOF must stay io.EOF
}

func (t *trackedBody) Close() error {
	t.stop()
	return t.ReadCloser.Close()
}
