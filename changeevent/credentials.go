package changeevent

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// lookEvery is how often files of credentials are looked at.
	lookEvery = 5 * time.Second
	// maxCredential bounds one, in bytes.
	maxCredential = 64 << 10
)

// keys are the credentials in force, and the endpoint, which may be one.
type keys struct {
	endpoint *url.URL
	auth     string // the value of the header
	body     string // what goes into the body
	signing  []byte
	texts    [4]string // what they were made from
}

// credentials give the keys in force, and follow their files.
type credentials struct {
	cfg     Config
	log     *slog.Logger
	current atomic.Pointer[keys]

	mu     sync.Mutex
	looked atomic.Int64 // when, in nanoseconds since 1970
}

// newCredentials reads all credentials, which must be there.
func newCredentials(cfg Config, log *slog.Logger) (*credentials, error) {
	c := &credentials{cfg: cfg, log: log}
	k, err := c.read(new(keys))
	if err != nil {
		return nil, err
	}
	c.current.Store(k)
	c.looked.Store(time.Now().UnixNano())
	return c, nil
}

// get gives the keys in force, of files as they were a few seconds ago at most.
func (c *credentials) get(ctx context.Context) *keys {
	if c.cfg.EndpointFile == "" && c.cfg.AuthTokenFile == "" && c.cfg.RoutingKeyFile == "" && c.cfg.SigningKeyFile == "" {
		return c.current.Load()
	}
	if c.due() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.due() {
			c.look(ctx)
		}
	}
	return c.current.Load()
}

// due says that the files are to be looked at again, also if the clock was set
// back since they last were.
func (c *credentials) due() bool {
	since := time.Now().UnixNano() - c.looked.Load()
	return since >= int64(lookEvery) || since < 0
}

// renew gives the keys after those that were used were refused, and whether
// they are others, so that another try makes sense.
func (c *credentials) renew(ctx context.Context, refused *keys) (k *keys, renewed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current.Load() == refused {
		c.look(ctx)
	}
	k = c.current.Load()
	return k, k != refused
}

// look reads the files again. While one cannot be read, as happens when it is
// being replaced, what is in force stays.
func (c *credentials) look(ctx context.Context) {
	c.looked.Store(time.Now().UnixNano())
	old := c.current.Load()
	k, err := c.read(old)
	if err != nil {
		c.log.WarnContext(ctx, "credential of the sink not read again, the last one stays in force", "err", err)
		return
	}
	if k != old {
		c.current.Store(k)
		c.log.InfoContext(ctx, "credential of the sink has changed")
	}
}

// read gives the keys as they are now: old itself, if nothing has changed.
func (c *credentials) read(old *keys) (*keys, error) {
	var k keys
	var errs [4]error
	k.texts[0], errs[0] = oneOf("Endpoint", c.cfg.Endpoint, c.cfg.EndpointFile)
	k.texts[1], errs[1] = oneOf("AuthToken", c.cfg.AuthToken, c.cfg.AuthTokenFile)
	k.texts[2], errs[2] = oneOf("RoutingKey", c.cfg.RoutingKey.Reveal(), c.cfg.RoutingKeyFile)
	k.texts[3], errs[3] = oneOf("SigningKey", "", c.cfg.SigningKeyFile)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	if k.texts == old.texts {
		return old, nil
	}
	endpoint, err := parseEndpoint(k.texts[0], c.cfg.AllowHTTP)
	if err != nil {
		return nil, err
	}
	k.endpoint, k.auth, k.body, k.signing = endpoint, withScheme(c.cfg.AuthScheme, k.texts[1]), k.texts[2], []byte(k.texts[3])
	return &k, checkKey(c.cfg.Format, k.body)
}

// withScheme puts the scheme before a token that does not have it already.
func withScheme(scheme, token string) string {
	if scheme == "" || token == "" || strings.HasPrefix(token, scheme+" ") {
		return token
	}
	return scheme + " " + token
}

// oneOf gives what is set, or what its file holds, without a line break at the
// end, which editors and secrets have there.
func oneOf(what, value, file string) (string, error) {
	if file != "" {
		data, err := readFile(file)
		if err != nil {
			return "", fmt.Errorf("read the file of %s: %w", what, err)
		}
		value = string(bytes.TrimPrefix(data, []byte("\xEF\xBB\xBF")))
	}
	value = strings.TrimSuffix(strings.TrimSuffix(value, "\n"), "\r")
	if file != "" && value == "" {
		return "", fmt.Errorf("read the file of %s: %q is empty", what, file)
	}
	return value, checkLine(what, value)
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name) //nolint:gosec // which file it is, is for the configuration to say
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxCredential+1))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if len(data) > maxCredential {
		return nil, fmt.Errorf("%q has more than %d bytes", name, maxCredential)
	}
	return data, nil
}

// redact takes the credentials out of a text that a sink, a proxy or a library
// has made.
func (k *keys) redact(text string) string {
	_, token, _ := strings.Cut(k.auth, " ")
	secrets := []string{k.auth, k.texts[1], token, k.body, string(k.signing)}
	if len(k.endpoint.EscapedPath()) > 1 {
		secrets = append(secrets, k.texts[0], k.endpoint.RequestURI(), k.endpoint.EscapedPath())
	}
	for _, secret := range secrets {
		if cmp.Or(secret, "/") != "/" {
			text = strings.ReplaceAll(text, secret, redacted)
		}
	}
	return text
}
