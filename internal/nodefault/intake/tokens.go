package intake

import (
	"github.com/fleetloop/fleetloop/internal/httpserver"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// A tokenList is the content of a token file.
type tokenList struct {
	Tokens []tokenEntry `key:"tokens" validate:"dive" doc:"Accepted tokens."`
}

// A tokenEntry is one token. Exactly one of Token and SHA256 must be set.
type tokenEntry struct {
	Token   settings.Secret `key:"token" doc:"Token."`
	SHA256  string          `key:"sha256" doc:"SHA-256 of the token in hexadecimal, so that the file contains no secret."`
	Subject string          `key:"subject" validate:"required" doc:"Name of the token's owner in the log."`
}

// readTokenFile reads a token file. The owner of a token is its subject.
func readTokenFile(path string) ([]httpserver.BearerToken[string], error) {
	var list tokenList
	if _, err := settings.Load(&list, settings.Source{File: path}); err != nil {
		return nil, err //nolint:wrapcheck // it names the file
	}
	tokens := make([]httpserver.BearerToken[string], 0, len(list.Tokens))
	for _, e := range list.Tokens {
		tokens = append(tokens, httpserver.BearerToken[string]{Plain: e.Token.Reveal(), SHA256: e.SHA256, Subject: e.Subject, Owner: e.Subject})
	}
	return tokens, nil
}
