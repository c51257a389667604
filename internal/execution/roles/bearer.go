package roles

import (
	"io"
	"net/http"
)

// maxDrained limits the bytes read from a refusal in order to reuse its connection.
const maxDrained = 64 << 10

// wrapTransport adds the token of the account to requests.
func (a *account) wrapTransport(next http.RoundTripper) http.RoundTripper {
	return &bearer{account: a, next: next}
}

// A bearer is the HTTP transport of an account.
type bearer struct {
	account *account
	next    http.RoundTripper
}

// RoundTrip sends a request with the token of the account. If the API server rejects the token, it
// repeats the request once with a new one.
func (b *bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	value, err := b.account.getOrRequestToken(r.Context(), "")
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // required of a transport; the original error is more useful
		}
		return nil, err
	}
	answer, err := b.next.RoundTrip(withToken(r, value))
	if err != nil || answer.StatusCode != http.StatusUnauthorized {
		return answer, err
	}
	again, ok := rewindRequest(r)
	if !ok {
		return answer, nil
	}
	_, _ = io.CopyN(io.Discard, answer.Body, maxDrained) // on failure the connection is not reused
	_ = answer.Body.Close()                              // as above
	if value, err = b.account.getOrRequestToken(r.Context(), value); err != nil {
		if again.Body != nil {
			_ = again.Body.Close() // as above
		}
		return nil, err
	}
	return b.next.RoundTrip(withToken(again, value))
}

// WrappedRoundTripper returns the underlying transport.
func (b *bearer) WrappedRoundTripper() http.RoundTripper { return b.next }

// withToken returns a copy of a request with the token set. A transport must not modify its
// request.
func withToken(r *http.Request, token string) *http.Request {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}

// rewindRequest returns a copy of a sent request that can be sent again.
func rewindRequest(request *http.Request) (again *http.Request, ok bool) {
	if request.Body == nil || request.Body == http.NoBody {
		return request, true
	}
	if request.GetBody == nil {
		return nil, false
	}
	body, err := request.GetBody()
	if err != nil {
		return nil, false
	}
	request = request.Clone(request.Context())
	request.Body = body
	return request, true
}
