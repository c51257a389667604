package fleetapi

import (
	"context"
	"net/http"
	"strings"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
	"github.com/fleetloop/fleetloop/internal/fleetapi/rest"
)

// A Standby is a copy of the store that answers reads with bounded staleness.
type Standby interface {
	// RunRead calls read with a context in which the store reads from the standby, if that has the writes before a token
	// ("" for none). If it does not, or if read fails, it calls read with ctx. It returns an error
	// without a call if the token is malformed.
	RunRead(ctx context.Context, after string, read func(context.Context) error) error

	// ReadToken returns a token of all writes that were committed before the call. Any process accepts it. "" means that a
	// read needs none.
	ReadToken(ctx context.Context) string
}

// readFromStandby returns a handler that reads from the standby. If that fails it reads from the primary, so a refusal, such as
// not found, is always that of the primary. Changes are read from the primary: their reader is one for all
// watches, and a standby would delay every event. So are resources by their ids: a client that looks up a changed
// resource must not get an earlier state than the change had.
func (a *API) readFromStandby(h handler) handler {
	if a.standby == nil {
		return h
	}
	return func(w http.ResponseWriter, r *http.Request, who auth.Principal) error {
		query := r.URL.Query()
		if asksForChanges(query) || query.Has("ids") || strings.Contains(r.Header.Get("Accept"), "event-stream") {
			return h(w, r, who)
		}
		answer, _ := w.(*observedResponse)
		called := false
		var last error
		err := a.standby.RunRead(r.Context(), r.Header.Get(v1.ReadAfterHeader), func(ctx context.Context) error {
			if !called || answer == nil || !answer.begun {
				called, last = true, h(w, r.WithContext(ctx), who)
			}
			return last
		})
		if err != nil && !called {
			return rest.NewError(
				rest.CodeInvalidQuery,
				"the header %s is not a token of this API; send the value of the same header of the last write, or leave it out",
				v1.ReadAfterHeader,
			)
		}
		return err
	}
}

// addReadToken adds the token with which the client reads its write. A conflict has one, too: the client then
// reads what it conflicts with.
func (a *API) addReadToken(w http.ResponseWriter, r *http.Request, status int) {
	if a.standby == nil || r.Method == http.MethodGet || r.Method == http.MethodHead {
		return
	}
	if status >= http.StatusBadRequest && status != http.StatusConflict && status != http.StatusPreconditionFailed {
		return
	}
	if token := a.standby.ReadToken(r.Context()); token != "" {
		w.Header().Set(v1.ReadAfterHeader, token)
	}
}
