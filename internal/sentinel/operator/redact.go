package operator

import (
	"net/url"
	"slices"
	"strings"

	"github.com/fleetloop/fleetloop/internal/sentinel/sentinelconfig"
)

// A redactedError hides secrets in the text of another error. Errors of connections appear in
// logs and in the status of an object.
type redactedError struct {
	text string
	err  error
}

func (c *redactedError) Error() string { return c.text }
func (c *redactedError) Unwrap() error { return c.err }

// redactSecrets removes secrets from an error's text.
func redactSecrets(err error, secrets []string) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	clean := text
	for _, secret := range secrets {
		clean = strings.ReplaceAll(clean, secret, "***")
	}
	if clean == text {
		return err
	}
	return &redactedError{clean, err}
}

// minSecretLength is the minimum length of a secret that is redacted. Shorter ones would match
// inside ordinary words.
const minSecretLength = 4

// listSecretValues returns the secrets in settings, the longest first.
func listSecretValues(s *sentinelconfig.Settings) []string {
	all := []string{s.Broker.URL.Reveal(), s.Broker.KeyJSON.Reveal(), s.Sentinel.HyperfleetAPI.Token.Reveal()}
	for _, value := range s.Sentinel.HyperfleetAPI.Headers {
		all = append(all, value.Reveal())
	}
	for one := range strings.SplitSeq(s.Broker.URL.Reveal(), ",") {
		if u, err := url.Parse(strings.TrimSpace(one)); err == nil && u.User != nil {
			password, given := u.User.Password()
			if !given {
				password = u.User.Username() // a token
			}
			all = append(all, password, url.QueryEscape(password), u.User.String())
		}
	}
	all = slices.DeleteFunc(all, func(secret string) bool { return len(secret) < minSecretLength })
	slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) })
	return all
}
