package guard_test

import (
	"bytes"
	"io"
	"net/http"
	"time"
)

// A schemaLagRetrier repeats requests that the API server rejects because its mutating
// admission policies have not read the schema yet. That is so for some seconds after each
// change of a CustomResourceDefinition, also of one that a parallel test changes.
type schemaLagRetrier struct{ next http.RoundTripper }

// RoundTrip sends a request until the answer is about the request, for at most a minute.
func (r schemaLagRetrier) RoundTrip(req *http.Request) (*http.Response, error) {
	const every, most = 100 * time.Millisecond, 600
	for n := 0; ; n++ {
		again := req.Clone(req.Context())
		if req.GetBody != nil {
			body, err := req.GetBody()
			if err != nil {
				return nil, err
			}
			again.Body = body
		}
		resp, err := r.next.RoundTrip(again)
		if err != nil || resp.StatusCode != http.StatusServiceUnavailable || n == most {
			return resp, err
		}
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			return nil, err
		}
		if err := resp.Body.Close(); err != nil {
			return nil, err
		}
		resp.Body = io.NopCloser(bytes.NewReader(text))
		if !bytes.Contains(text, []byte("There can be a delay between when CustomResourceDefinitions")) {
			return resp, nil
		}
		timer := time.NewTimer(every)
		select {
		case <-timer.C:
		case <-req.Context().Done():
			timer.Stop()
			return nil, req.Context().Err()
		}
	}
}
