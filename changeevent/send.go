package changeevent

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"maps"
	"net/http"
	"strconv"
	"time"
)

// sendOnce sends the request once and limits its time.
func (s *batchDelivery) sendOnce() attemptResult {
	ctx, cancel := context.WithTimeoutCause(s.ctx, s.client.cfg.Timeout, errTimeout)
	defer cancel()
	began := time.Now()
	defer func() { s.client.results.metrics.took.Observe(time.Since(began).Seconds()) }()
	r, err := s.newRequest(ctx)
	if err != nil {
		return attemptResult{class: ClassEncode, permanent: true, text: err.Error()}
	}
	resp, err := s.client.http.RoundTrip(r)
	if err != nil {
		return classifyRequestError(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	attempt := readResponse(resp, time.Now())
	s.client.pace.pauseSinkFor(attempt.after)
	return attempt
}

// newRequest returns the request to the current endpoint, with the current keys.
func (s *batchDelivery) newRequest(ctx context.Context) (*http.Request, error) {
	url, err := appendPathSegment(s.keys.endpoint, s.req.path)
	if err != nil {
		return nil, err
	}
	header := make(http.Header, len(s.req.header)+4)
	maps.Copy(header, s.req.header)
	header["Content-Type"] = []string{s.req.contentType}
	header["User-Agent"] = []string{"fleetloop"}
	if s.keys.auth != "" {
		header[s.client.cfg.AuthHeader] = []string{s.keys.auth}
	}
	body := s.req.body
	if len(s.keys.signing) > 0 {
		header["X-Fleetloop-Signature"] = []string{signBody(s.keys.signing, time.Now(), body)}
	}
	newBody := func() io.ReadCloser { return io.NopCloser(bytes.NewReader(body)) }
	request := &http.Request{
		Method:        http.MethodPost,
		URL:           url,
		Host:          url.Host,
		Header:        header,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Body:          newBody(),
		ContentLength: int64(len(body)),
		// Repeats the body if the sink had closed an idle connection.
		GetBody: func() (io.ReadCloser, error) { return newBody(), nil },
	}
	return request.WithContext(ctx), nil
}

// signBody returns the value of X-Fleetloop-Signature. The time is signed, too, so that a
// sink can reject replayed requests.
func signBody(key []byte, now time.Time, body []byte) string {
	timestamp := strconv.FormatInt(now.Unix(), 10)
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(timestamp + "."))
	mac.Write(body)
	return "t=" + timestamp + ",v1=" + hex.EncodeToString(mac.Sum(nil))
}

// A contextWithValuesOf context ends with the client and has the values of the caller's context.
type contextWithValuesOf struct {
	context.Context //nolint:containedctx // it is one
	values          context.Context
}

// Value asks the client's context first. Package context uses Value to find the parent
// that cancels a context.
func (d contextWithValuesOf) Value(key any) any {
	if v := d.Context.Value(key); v != nil || d.values == nil {
		return v
	}
	return d.values.Value(key)
}
