package cli

import (
	"io"
	"net/http"
	"time"

	"github.com/spf13/pflag"

	"github.com/fleetloop/fleetloop/internal/app/terminal"
)

const verboseFlag = "verbose"

func addVerboseFlag(flags *pflag.FlagSet, verbose *bool) {
	flags.BoolVarP(verbose, verboseFlag, "v", false, "print each request and the status of its response on standard error, without headers and bodies")
}

// describeRequest returns a line about a request. It omits the headers, which have the token, and the bodies.
func describeRequest(r *http.Request, resp *http.Response, took time.Duration) string {
	result := "no response"
	if resp != nil {
		result = resp.Status
	}
	return terminal.ReplaceUnprintable(r.Method + " " + r.URL.Redacted() + ": " + result + " in " + took.Round(time.Millisecond).String())
}

// A requestLog prints the requests to a host cluster.
type requestLog struct {
	next http.RoundTripper
	env  Env
}

func (l requestLog) RoundTrip(r *http.Request) (*http.Response, error) {
	began := time.Now()
	resp, err := l.next.RoundTrip(r)
	_, _ = io.WriteString(l.env.Stderr, describeRequest(r, resp, time.Since(began))+"\n") // a closed stderr is no error
	return resp, err
}
