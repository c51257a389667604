package httpserver

import (
	"net/http"
	"time"
)

// pingAfter is the time without an answer after which an HTTP/2 connection is checked, and the time that the server has to
// answer that.
const pingAfter = 5 * time.Second

// NewTransport returns a transport like that of net/http, for requests to other servers, that also notices a dead HTTP/2
// connection. Otherwise all requests to a server wait on it until TCP gives it up, which takes minutes.
func NewTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone() //nolint:errcheck,forcetypeassert // the standard library's own
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingAfter}
	return t
}
