package console

import (
	"context"
	"errors"
	"net"
	"net/http"

	"github.com/fleetloop/fleetloop/internal/console/session"
)

// currentPerson returns the signed-in person. In ModeNone everyone is the same one.
func (c *Console) currentPerson(r *http.Request) (session.Session, error) {
	if c.cfg.Mode == ModeNone {
		who, err := c.deps.Identify(r.Context(), "")
		return session.Session{User: who}, err
	}
	id := c.cookies.sessionID(r)
	if id == "" {
		return session.Session{}, session.ErrNone
	}
	return c.deps.Sessions.Get(r.Context(), id)
}

// requireSession passes on the requests of signed-in persons.
func (c *Console) requireSession(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var p session.Session
		if c.cfg.Mode != ModeNone { // the name is of no use to the fleet API
			var err error
			if p, err = c.currentPerson(r); err != nil {
				c.writeError(w, r, err)
				return
			}
		}
		ctx := withPerson(r.Context(), p)
		ctx = context.WithValue(ctx, recorderKey{}, c.deps.RecordAction)
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// writeError answers with the status that fits an error.
func (c *Console) writeError(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, session.ErrNone):
		WriteProblem(w, http.StatusUnauthorized, "You are not signed in, or your session has ended.", "Sign in.")
	case errors.Is(err, ErrToken):
		WriteProblem(w, http.StatusUnauthorized, "The fleet API does not accept the token.", "Check that the token is complete and has not expired.")
	default:
		c.log.WarnContext(r.Context(), "request failed", "path", r.URL.Path, "err", err)
		WriteProblem(w, http.StatusServiceUnavailable, "The console cannot do this now.", "Try again. If this lasts, look at the log of the console.")
	}
}

// signInByToken starts a session with a token that the fleet API accepts.
func (c *Console) signInByToken(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Token string `json:"token"`
	}
	if c.cfg.Mode != ModeToken {
		WriteProblem(w, http.StatusNotFound, "The console does not take tokens.", "Choose the sign-in that the page shows.")
		return
	}
	if !ReadJSON(w, r, &body) {
		return
	}
	who, err := session.User{}, ErrToken
	if body.Token != "" {
		who, err = c.deps.Identify(r.Context(), body.Token)
	}
	if err != nil {
		c.metrics.countSignIn(c.cfg.Mode, err)
		c.writeError(w, r, err)
		return
	}
	c.startSession(w, r, who, session.Tokens{Bearer: body.Token})
}

// signInAsDemoPerson starts a session of one of the fixed persons.
func (c *Console) signInAsDemoPerson(w http.ResponseWriter, r *http.Request) {
	var body struct {
		User string `json:"user"`
	}
	if c.cfg.Mode != ModeDemo {
		WriteProblem(w, http.StatusNotFound, "The console has no demo persons.", "Choose the sign-in that the page shows.")
		return
	}
	if !ReadJSON(w, r, &body) {
		return
	}
	for _, p := range c.deps.Demo {
		if p.Name == body.User {
			c.startSession(w, r, session.User{Name: p.Name, Roles: []string{p.Role}}, session.Tokens{Bearer: p.Token})
			return
		}
	}
	WriteProblem(w, http.StatusBadRequest, "There is no demo person of this name.", "Choose one of the list.")
}

// startSession starts a session with a new id and ends the earlier one of the browser, so that an id
// that someone else knows never becomes a signed-in session.
func (c *Console) startSession(w http.ResponseWriter, r *http.Request, who session.User, tokens session.Tokens) {
	id, err := c.beginSession(r, who, tokens)
	c.metrics.countSignIn(c.cfg.Mode, err)
	if err != nil {
		c.writeError(w, r, err)
		return
	}
	c.cookies.set(w, sessionCookie, id, http.SameSiteLaxMode)
	w.WriteHeader(http.StatusNoContent)
}

func (c *Console) beginSession(r *http.Request, who session.User, tokens session.Tokens) (id string, err error) {
	if old := c.cookies.sessionID(r); old != "" {
		if err := c.deps.Sessions.End(r.Context(), old); err != nil {
			return "", err
		}
	}
	id, _, err = c.deps.Sessions.Start(r.Context(), who, tokens)
	if err == nil {
		c.log.InfoContext(r.Context(), "signed in", "user", who.Name, "mode", c.cfg.Mode, "remote", clientAddress(r))
	}
	return id, err
}

// signOut ends the session on the server and removes its cookie.
func (c *Console) signOut(w http.ResponseWriter, r *http.Request) {
	if id := c.cookies.sessionID(r); id != "" {
		if err := c.deps.Sessions.End(r.Context(), id); err != nil {
			c.writeError(w, r, err)
			return
		}
	}
	c.cookies.set(w, sessionCookie, "", http.SameSiteLaxMode)
	w.WriteHeader(http.StatusNoContent)
}

// limitSignIns limits the attempts from one address.
func (c *Console) limitSignIns(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !c.signIns.allow(clientAddress(r)) {
			c.metrics.countSignIn(c.cfg.Mode, errTooMany)
			w.Header().Set("Retry-After", "60")
			WriteProblem(w, http.StatusTooManyRequests, "There were too many attempts to sign in from your address.", "Wait a minute.")
			return
		}
		next(w, r)
	}
}

// clientAddress returns the address that opened the connection. Behind a proxy it is the proxy's: a
// header with another one could be forged.
func clientAddress(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
