package cli

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	consolesession "github.com/fleetloop/fleetloop/internal/console/session"
)

// A loginMethod is the way in which a token was obtained.
type loginMethod string

// The methods.
const (
	methodBrowser loginMethod = "browser"
	methodDevice  loginMethod = "device"
	methodStdin   loginMethod = "stdin"
)

// A loginIssuer is where a token is renewed.
type loginIssuer struct {
	URL      string   `json:"url"`
	ClientID string   `json:"client_id"`
	Scopes   []string `json:"scopes,omitempty"`
	Token    string   `json:"token"`
}

// A storedLogin is one sign-in. Its tokens belong to one context and one server, so that no other server gets them.
type storedLogin struct {
	Context string                `json:"context,omitempty"` // empty without a context
	Server  string                `json:"server"`
	Method  loginMethod           `json:"method"`
	Issuer  loginIssuer           `json:"issuer,omitzero"`
	Tokens  consolesession.Tokens `json:"tokens"`
}

// String keeps the tokens out of logs.
func (l storedLogin) String() string { return fmt.Sprintf("login %s at %s", l.Method, l.Server) }

// GoString does the same for %#v.
func (l storedLogin) GoString() string { return l.String() }

func (l storedLogin) isFor(contextName, server string) bool {
	return l.Context == contextName && l.Server == server
}

// A loginStore is the file with the tokens of people who have signed in. Only its owner may read it.
type loginStore struct{ path string }

type loginDocument struct {
	Logins []storedLogin `json:"logins"`
}

func parseLogins(path string, data []byte) (doc loginDocument, err error) {
	if len(data) == 0 {
		return doc, nil
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		// The text of a JSON error may repeat a part of the file.
		return doc, fmt.Errorf("%s is not a file of logins; delete it and log in again", path)
	}
	return doc, nil
}

func (s loginStore) findLogin(contextName, server string) (l storedLogin, found bool, err error) {
	data, err := os.ReadFile(s.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return l, false, err
	}
	doc, err := parseLogins(s.path, data)
	for _, l := range doc.Logins {
		if l.isFor(contextName, server) {
			return l, true, nil
		}
	}
	return l, false, err
}

// put stores a login, in the place of one of the same context and server.
func (s loginStore) put(ctx context.Context, l storedLogin) error {
	return s.updateLogins(ctx, func(logins []storedLogin) ([]storedLogin, error) {
		logins = slices.DeleteFunc(logins, func(o storedLogin) bool { return o.isFor(l.Context, l.Server) })
		return append(logins, l), nil
	})
}

// deleteLogin deletes the login of a context at a server, and returns it. It reports whether there was one.
func (s loginStore) deleteLogin(ctx context.Context, contextName, server string) (deleted storedLogin, existed bool, err error) {
	err = s.updateLogins(ctx, func(logins []storedLogin) ([]storedLogin, error) {
		i := slices.IndexFunc(logins, func(o storedLogin) bool { return o.isFor(contextName, server) })
		if i < 0 {
			return logins, nil
		}
		deleted, existed = logins[i], true
		return slices.Delete(logins, i, i+1), nil
	})
	return deleted, existed, err
}

func (s loginStore) deleteLoginsOfContext(ctx context.Context, contextName string) error {
	if _, err := os.Stat(s.path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return s.updateLogins(ctx, func(logins []storedLogin) ([]storedLogin, error) {
		return slices.DeleteFunc(logins, func(l storedLogin) bool { return l.Context == contextName }), nil
	})
}

func (s loginStore) updateLogins(ctx context.Context, change func([]storedLogin) ([]storedLogin, error)) error {
	return updatePrivateFile(ctx, s.path, func(old []byte) ([]byte, error) {
		doc, err := parseLogins(s.path, old)
		if err != nil {
			return nil, err
		}
		if doc.Logins, err = change(doc.Logins); err != nil {
			return nil, err
		}
		text, err := json.MarshalIndent(doc, "", "  ")
		return append(text, '\n'), err
	})
}

// parseJWTExpiry returns the time at which a token expires, if it is a JWT that says so. The token is not verified.
func parseJWTExpiry(token string) time.Time {
	var claims struct {
		Expires int64 `json:"exp"`
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(payload, &claims) != nil || claims.Expires <= 0 {
		return time.Time{}
	}
	return time.Unix(claims.Expires, 0)
}
