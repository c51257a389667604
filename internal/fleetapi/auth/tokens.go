package auth

import (
	"errors"
	"fmt"
	"strings"

	"github.com/fleetloop/fleetloop/internal/httpserver"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// A tokenList is the content of a token file.
type tokenList struct {
	Tokens []tokenEntry `key:"tokens" validate:"dive" doc:"Accepted tokens."`
}

// A tokenEntry is one token. Exactly one of Token and SHA256, the token's hexadecimal hash, is set.
type tokenEntry struct {
	Token   settings.Secret `key:"token" doc:"The token."`
	SHA256  string          `key:"sha256" doc:"SHA-256 of the token in hexadecimal, so that the file holds no secret."`
	Subject string          `key:"subject" validate:"required" doc:"Name of the token's owner, as shown in created_by and in the log."`
	Tenant  string          `key:"tenant" doc:"Tenant of the subject; may be empty if the subject has a role."`
	Roles   []Role          `key:"roles" validate:"dive,oneof=system viewer operator" doc:"Roles of the subject: system for sentinels and adapters, viewer to read all tenants, operator to read and change all tenants."`
}

func readTokenFile(path string) ([]httpserver.BearerToken[Principal], error) {
	var list tokenList
	if _, err := settings.Load(&list, settings.Source{File: path}); err != nil {
		return nil, err //nolint:wrapcheck // it names the file
	}
	tokens := make([]httpserver.BearerToken[Principal], 0, len(list.Tokens))
	for _, e := range list.Tokens {
		tokens = append(tokens, httpserver.BearerToken[Principal]{
			Plain: e.Token.Reveal(), SHA256: e.SHA256, Subject: e.Subject,
			Owner: Principal{Subject: e.Subject, Tenant: e.Tenant, Roles: e.Roles}, Wrong: e.checkTenantAndRoles(),
		})
	}
	return tokens, nil
}

func (e tokenEntry) checkTenantAndRoles() error {
	switch {
	case !isValidSubject(e.Subject):
		return fmt.Errorf("subject must be 1 to 253 printable characters without %q", strings.TrimSpace(impersonationMark))
	case e.Tenant == "" && len(e.Roles) == 0:
		return fmt.Errorf("must have a tenant or one of the roles %q, %q and %q", System, Viewer, Operator)
	case e.Tenant != "" && !httpserver.IsValidSubjectOrTenant(e.Tenant):
		return errors.New("tenant must be 1 to 253 printable characters")
	}
	return nil
}
