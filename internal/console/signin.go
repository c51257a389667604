package console

import (
	"context"
	"errors"
	"net"
	"net/http"

	"github.com/fleetloop/fleetloop/internal/console/session"
)

// getSessionAndRecordUse returns the signed-in person. In ModeNone everyone is the same one.
func (c *Console) getSessionAndRecordUse(r *http.Request) (session.Session, error) {
	if c.cfg.Mode == ModeNone {
		who, err := c.deps.Identify(r.Context(), "")
		return session.Session{User: who}, err
	}
	id := c.cookies.readSessionID(r)
	if id == "" {
		return session.Session{}, session.ErrNone
	}
	return c.deps.Sessions.GetAndRecordUse(r.Context(), id)
}

// requireSession passes on the requests of signed-in persons.
func (c *Console) requireSession(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var p session.Session
		if c.cfg.Mode != ModeNone { // the name is of no use to the fleet API
			var err error
			if p, err = c.getSessionAndRecordUse(r); err != nil {
				c.writeErrorProblem(w, r, err)
				return
			}
		}
		ctx := withSession(r.Context(), p)
		ctx = context.WithValue(ctx, recorderKey{}, c.deps.RecordAction)
		ctx = context.WithValue(ctx, endSessionKey{}, func(ctx context.Context) error {
			return c.endSessionWithToken(ctx, c.cookies.readSessionID(r), p.Tokens.Bearer)
		})
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// writeErrorProblem answers with the status that fits an error.
func (c *Console) writeErrorProblem(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, session.ErrNone):
		WriteProblemJSON(w, http.StatusUnauthorized, "You are not signed in, or your session has ended.", "Sign in.")
	case errors.Is(err, ErrToken):
		WriteProblemJSON(
			w,
			http.StatusUnauthorized,
			"The fleet API does not accept the token.",
			"Check that the token is complete and has not expired.",
		)
	default:
		c.log.WarnContext(r.Context(), "request failed", "path", r.URL.Path, "err", err)
		WriteProblemJSON(
			w,
			http.StatusServiceUnavailable,
			"The console cannot do this now.",
			"Try again. If this lasts, look at the log of the console.",
		)
	}
}

// signInByToken starts a session with a token that the fleet API accepts.
func (c *Console) signInByToken(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Token string `json:"token"`
	}
	if c.cfg.Mode != ModeToken {
		WriteProblemJSON(w, http.StatusNotFound, "The console does not take tokens.", "Choose the sign-in that the page shows.")
		return
	}
	if !DecodeJSONOrWriteProblem(w, r, &body) {
		return
	}
	user, err := c.identifyToken(r.Context(), body.Token)
	if err != nil {
		c.metrics.countSignInResult(c.cfg.Mode, err)
		c.writeErrorProblem(w, r, err)
		return
	}
	c.startSessionAndSetCookie(w, r, user, session.Tokens{Bearer: body.Token})
}

// identifyToken returns the person of a token. The fleet API would take no token for the anonymous user.
func (c *Console) identifyToken(ctx context.Context, token string) (session.User, error) {
	if token == "" {
		return session.User{}, ErrToken
	}
	return c.deps.Identify(ctx, token)
}

// signInAsDemoPerson starts a session of one of the fixed persons.
func (c *Console) signInAsDemoPerson(w http.ResponseWriter, r *http.Request) {
	var body struct {
		User string `json:"user"`
	}
	if c.cfg.Mode != ModeDemo {
		WriteProblemJSON(w, http.StatusNotFound, "The console has no demo persons.", "Choose the sign-in that the page shows.")
		return
	}
	if !DecodeJSONOrWriteProblem(w, r, &body) {
		return
	}
	for _, p := range c.deps.Demo {
		if p.Name == body.User {
			c.startSessionAndSetCookie(w, r, session.User{Name: p.Name, Roles: []string{p.Role}}, session.Tokens{Bearer: p.Token})
			return
		}
	}
	WriteProblemJSON(w, http.StatusBadRequest, "The demo has no person with this name.", "Choose a person from the list.")
}

// startSessionAndSetCookie starts a session with a new id and ends the earlier one of the browser.
// So an id that someone else knows never becomes a signed-in session.
func (c *Console) startSessionAndSetCookie(w http.ResponseWriter, r *http.Request, user session.User, tokens session.Tokens) {
	id, err := c.replaceSession(r, user, tokens)
	c.metrics.countSignInResult(c.cfg.Mode, err)
	if err != nil {
		c.writeErrorProblem(w, r, err)
		return
	}
	c.cookies.setOrRemoveCookie(w, sessionCookie, id, http.SameSiteLaxMode)
	w.WriteHeader(http.StatusNoContent)
}

func (c *Console) replaceSession(r *http.Request, user session.User, tokens session.Tokens) (sessionID string, err error) {
	if old := c.cookies.readSessionID(r); old != "" {
		if err := c.deps.Sessions.EndSession(r.Context(), old); err != nil {
			return "", err
		}
	}
	sessionID, _, err = c.deps.Sessions.CreateSession(r.Context(), user, tokens)
	if err == nil {
		c.log.InfoContext(r.Context(), "signed in", "user", user.Name, "mode", c.cfg.Mode, "remote", remoteHost(r))
	}
	return sessionID, err
}

// endSessionWithToken ends a session with a token that the fleet API does not accept. A session with a newer token lasts.
func (c *Console) endSessionWithToken(ctx context.Context, sessionID, refusedToken string) error {
	current, err := c.deps.Sessions.GetWithoutRecordingUse(ctx, sessionID)
	switch {
	case errors.Is(err, session.ErrNone):
		return nil
	case err != nil || current.Tokens.Bearer != refusedToken:
		return err
	}
	c.log.InfoContext(ctx, "session ended: the fleet API does not accept its token", "user", current.User.Name)
	return c.deps.Sessions.EndSession(ctx, sessionID)
}

func (c *Console) endSessionAndRemoveCookie(w http.ResponseWriter, r *http.Request) {
	if id := c.cookies.readSessionID(r); id != "" {
		if err := c.deps.Sessions.EndSession(r.Context(), id); err != nil {
			c.writeErrorProblem(w, r, err)
			return
		}
	}
	c.cookies.setOrRemoveCookie(w, sessionCookie, "", http.SameSiteLaxMode)
	w.WriteHeader(http.StatusNoContent)
}

func (c *Console) limitSignInAttempts(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !c.signIns.takeAttempt(remoteHost(r)) {
			c.metrics.countSignInResult(c.cfg.Mode, errTooMany)
			w.Header().Set("Retry-After", "60")
			WriteProblemJSON(w, http.StatusTooManyRequests, "There were too many attempts to sign in from your address.", "Wait a minute.")
			return
		}
		next(w, r)
	}
}

// remoteHost returns the address that opened the connection. Behind a proxy it is the proxy's: a
// header with another one could be forged.
func remoteHost(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
