package identity

import (
	"io"
	"net/http"
)

// maxDrained is how much of a refusal is read so that its connection can be
// used again.
const maxDrained = 64 << 10

// wrapTransport adds the account's token to requests.
func (a *account) wrapTransport(next http.RoundTripper) http.RoundTripper {
	return &bearer{account: a, next: next}
}

// A bearer is the transport of an account.
type bearer struct {
	account *account
	next    http.RoundTripper
}

// RoundTrip sends a request with the account's token, and once more with a new
// one if the API server does not know it any more.
func (b *bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	value, err := b.account.validToken(r.Context(), "")
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // as a transport has to; the error at hand says more
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
	_, _ = io.CopyN(io.Discard, answer.Body, maxDrained) // a connection that cannot be used again is all that it costs
	_ = answer.Body.Close()                              // as above
	if value, err = b.account.validToken(r.Context(), value); err != nil {
		if again.Body != nil {
			_ = again.Body.Close() // as above
		}
		return nil, err
	}
	return b.next.RoundTrip(withToken(again, value))
}

// WrappedRoundTripper is the transport below.
func (b *bearer) WrappedRoundTripper() http.RoundTripper { return b.next }

// withToken is a request with a token. A transport must not change the one that
// it is given.
func withToken(r *http.Request, token string) *http.Request {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}

// rewindRequest is a request that was sent, to be sent again.
func rewindRequest(r *http.Request) (*http.Request, bool) {
	if r.Body == nil || r.Body == http.NoBody {
		return r, true
	}
	if r.GetBody == nil {
		return nil, false
	}
	body, err := r.GetBody()
	if err != nil {
		return nil, false
	}
	r = r.Clone(r.Context())
	r.Body = body
	return r, true
}
