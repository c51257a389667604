// Package credentials stores the tokens of people who have signed in at the command line.
//
// The tokens are in one file, which only its owner may read. They belong to one context and one server, so that no
// other server gets them. A token that expires is renewed. Only one process renews it at a time, because
// issuers accept a refresh token once; the others use the result.
package credentials

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

	"github.com/fleetloop/fleetloop/internal/console/session"
)

// A Method is the way in which a token was obtained.
type Method string

// The methods.
const (
	MethodBrowser Method = "browser"
	MethodDevice  Method = "device"
	MethodStdin   Method = "stdin"
)

// Tokens are the credentials of a login.
type Tokens = session.Tokens

// An Issuer is where a token is renewed.
type Issuer struct {
	URL      string   `json:"url"`
	ClientID string   `json:"client_id"`
	Scopes   []string `json:"scopes,omitempty"`
	Token    string   `json:"token"`
}

// A Login is one sign-in.
type Login struct {
	Context string         `json:"context,omitempty"` // empty without a context
	Server  string         `json:"server"`
	Method  Method         `json:"method"`
	Issuer  Issuer         `json:"issuer,omitzero"`
	Tokens  session.Tokens `json:"tokens"`
}

// String keeps the tokens out of logs.
func (l Login) String() string { return fmt.Sprintf("login %s at %s", l.Method, l.Server) }

// GoString does the same for %#v.
func (l Login) GoString() string { return l.String() }

func (l Login) isFor(contextName, server string) bool {
	return l.Context == contextName && l.Server == server
}

// A Store is a file of logins.
type Store struct{ Path string }

type document struct {
	Logins []Login `json:"logins"`
}

func parse(path string, data []byte) (doc document, err error) {
	if len(data) == 0 {
		return doc, nil
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		// The text of a JSON error may repeat a part of the file.
		return doc, fmt.Errorf("%s is not a file of logins; delete it and log in again", path)
	}
	return doc, nil
}

// Find returns the login of a context at a server.
func (s Store) Find(contextName, server string) (l Login, found bool, err error) {
	data, err := os.ReadFile(s.Path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return l, false, err
	}
	doc, err := parse(s.Path, data)
	for _, l := range doc.Logins {
		if l.isFor(contextName, server) {
			return l, true, nil
		}
	}
	return l, false, err
}

// Put stores a login, in the place of one of the same context and server.
func (s Store) Put(ctx context.Context, l Login) error {
	return s.update(ctx, func(logins []Login) ([]Login, error) {
		logins = slices.DeleteFunc(logins, func(o Login) bool { return o.isFor(l.Context, l.Server) })
		return append(logins, l), nil
	})
}

// Delete deletes the login of a context at a server. It reports whether there was one.
func (s Store) Delete(ctx context.Context, contextName, server string) (existed bool, err error) {
	err = s.update(ctx, func(logins []Login) ([]Login, error) {
		before := len(logins)
		logins = slices.DeleteFunc(logins, func(o Login) bool { return o.isFor(contextName, server) })
		existed = len(logins) < before
		return logins, nil
	})
	return existed, err
}

// DeleteContext deletes all logins of a context.
func (s Store) DeleteContext(ctx context.Context, contextName string) error {
	if _, err := os.Stat(s.Path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return s.update(ctx, func(logins []Login) ([]Login, error) {
		return slices.DeleteFunc(logins, func(l Login) bool { return l.Context == contextName }), nil
	})
}

func (s Store) update(ctx context.Context, change func([]Login) ([]Login, error)) error {
	return UpdatePrivateFile(ctx, s.Path, func(old []byte) ([]byte, error) {
		doc, err := parse(s.Path, old)
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

// Expiry returns the time at which a token expires, if it is a JWT that says so. The token is not verified.
func Expiry(token string) time.Time {
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
