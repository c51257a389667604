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
	texts    [fileCA]string // what they were made from
}

// A followed file is one that a sink cannot be told anything without.
type followed int

// The followed files, as Stats and metrics call them.
const (
	fileEndpoint followed = iota
	fileToken
	fileKey
	fileSigning
	fileCA
	nFollowed
)

func (f followed) String() string {
	return [nFollowed]string{"endpoint", "auth_token", "routing_key", "signing_key", "ca"}[f]
}

// A trouble is what is wrong with each of the files, or with what the
// configuration has in their place.
type trouble [nFollowed]error

func (t *trouble) currentError() error { return errors.Join(t[:]...) }

// credentials give the keys in force, and follow their files.
type credentials struct {
	cfg   Config
	log   *slog.Logger
	trust func() error // has certificates read that are not yet; nil if there are none

	current atomic.Pointer[keys]    // nil until all could be read
	there   chan struct{}           // closed when they were
	trouble atomic.Pointer[trouble] // of the last look; nil is none

	mu     sync.Mutex
	looked atomic.Int64 // when, in nanoseconds since 1970
}

// newCredentials reads all credentials. Files that cannot be read yet are waited
// for; what the configuration itself has must be right.
func newCredentials(cfg Config, log *slog.Logger, trust func() error) (*credentials, error) {
	c := &credentials{cfg: cfg, log: log, trust: trust, there: make(chan struct{})}
	k, failed := c.readKeys(new(keys))
	c.looked.Store(time.Now().UnixNano())
	if failed == nil {
		c.current.Store(k)
		close(c.there)
		return c, nil
	}
	for f, err := range failed {
		if err != nil && c.filePath(followed(f)) == "" {
			return nil, failed.currentError()
		}
	}
	c.trouble.Store(failed)
	log.Error("sink credential unreadable, events wait", "err", failed.currentError())
	return c, nil
}

// filePath is the path of a file, or "" if there is none.
func (c *credentials) filePath(f followed) string {
	ca := c.cfg.CAFile
	if c.trust == nil {
		ca = ""
	}
	return [nFollowed]string{c.cfg.EndpointFile, c.cfg.AuthTokenFile, c.cfg.RoutingKeyFile, c.cfg.SigningKeyFile, ca}[f]
}

// hasFiles says whether there is any file.
func (c *credentials) hasFiles() bool {
	for f := range nFollowed {
		if c.filePath(f) != "" {
			return true
		}
	}
	return false
}

// unreadable says of each file whether it could be read at the last look: nil,
// or why not.
func (c *credentials) unreadable() map[followed]error {
	var out map[followed]error
	failed := c.trouble.Load()
	for f := range nFollowed {
		if c.filePath(f) == "" {
			continue
		}
		if out == nil {
			out = make(map[followed]error, nFollowed)
		}
		out[f] = nil
		if failed != nil {
			out[f] = failed[f]
		}
	}
	return out
}

// missingReason says why there are no keys.
func (c *credentials) missingReason() string {
	if failed := c.trouble.Load(); failed != nil {
		return failed.currentError().Error()
	}
	return ""
}

// currentKeys gives the keys in force, of files as they were a few seconds ago at most.
// It is for those who have seen that they are there.
func (c *credentials) currentKeys(ctx context.Context) *keys {
	if c.hasFiles() {
		c.lookIfDue(ctx)
	}
	return c.current.Load()
}

func (c *credentials) lookIfDue(ctx context.Context) {
	if !c.isReadDue() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isReadDue() {
		c.rereadFiles(ctx)
	}
}

// isReadDue says that the files are to be looked at again, also if the clock was set
// back since they last were.
func (c *credentials) isReadDue() bool {
	since := time.Now().UnixNano() - c.looked.Load()
	return since >= int64(lookEvery) || since < 0
}

// renewKeys gives the keys after those that were used were refused, and whether
// they are others, so that another try makes sense.
func (c *credentials) renewKeys(ctx context.Context, refused *keys) (k *keys, renewed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current.Load() == refused {
		c.rereadFiles(ctx)
	}
	k = c.current.Load()
	return k, k != refused
}

// checkArrived looks once more whether the files are there, and says so.
func (c *credentials) checkArrived(ctx context.Context) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current.Load() == nil {
		c.rereadFiles(ctx)
	}
	return c.current.Load() != nil
}

// rereadFiles reads the files again. While one cannot be read, as happens when it is
// being replaced, what is in force stays.
func (c *credentials) rereadFiles(ctx context.Context) {
	defer c.looked.Store(time.Now().UnixNano()) // afterwards: who asks meanwhile waits for what is read
	old := c.current.Load()
	k, failed := c.readKeys(cmp.Or(old, new(keys)))
	before := c.trouble.Swap(failed)
	switch {
	case failed != nil && before != nil && failed.currentError().Error() == before.currentError().Error(): // it was said
	case failed != nil && old == nil:
		c.log.ErrorContext(ctx, "sink credential unreadable, events wait", "err", failed.currentError())
	case failed != nil:
		c.log.WarnContext(ctx, "sink credential unreadable, using the last one", "err", failed.currentError())
	case old == nil:
		c.current.Store(k)
		close(c.there)
		c.log.InfoContext(ctx, "sink credential read, sending pending events")
	case k != old:
		c.current.Store(k)
		c.log.InfoContext(ctx, "sink credential changed")
	}
}

// readKeys gives the keys as they are now: old itself, if nothing has changed.
func (c *credentials) readKeys(old *keys) (*keys, *trouble) {
	var k keys
	var failed trouble
	k.texts[fileEndpoint], failed[fileEndpoint] = oneOf("Endpoint", c.cfg.Endpoint, c.cfg.EndpointFile)
	k.texts[fileToken], failed[fileToken] = oneOf("AuthToken", c.cfg.AuthToken, c.cfg.AuthTokenFile)
	k.texts[fileKey], failed[fileKey] = oneOf("RoutingKey", c.cfg.RoutingKey.Reveal(), c.cfg.RoutingKeyFile)
	k.texts[fileSigning], failed[fileSigning] = oneOf("SigningKey", "", c.cfg.SigningKeyFile)
	if failed[fileEndpoint] == nil {
		k.endpoint, failed[fileEndpoint] = parseEndpoint(k.texts[fileEndpoint], c.cfg.AllowHTTP, c.cfg.AllowHosts...)
	}
	if failed[fileKey] == nil {
		failed[fileKey] = checkKey(c.cfg.Format, k.texts[fileKey])
	}
	if c.trust != nil {
		failed[fileCA] = c.trust()
	}
	switch {
	case failed.currentError() != nil:
		return nil, &failed
	case k.texts == old.texts:
		return old, nil
	}
	k.auth, k.body, k.signing = withScheme(c.cfg.AuthScheme, k.texts[fileToken]), k.texts[fileKey], []byte(k.texts[fileSigning])
	return &k, nil
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
			return "", fmt.Errorf("read file of %s: %w", what, err)
		}
		value = string(bytes.TrimPrefix(data, []byte("\xEF\xBB\xBF")))
	}
	value = strings.TrimSuffix(strings.TrimSuffix(value, "\n"), "\r")
	if file != "" && value == "" {
		return "", fmt.Errorf("read file of %s: %q is empty", what, file)
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
		return nil, fmt.Errorf("%q is larger than %d bytes", name, maxCredential)
	}
	return data, nil
}

// redactKeys takes the credentials out of a text that a sink, a proxy or a library
// has made.
func (k *keys) redactKeys(text string) string {
	_, token, _ := strings.Cut(k.auth, " ")
	secrets := []string{k.auth, k.texts[fileToken], token, k.body, string(k.signing)}
	if len(k.endpoint.EscapedPath()) > 1 {
		secrets = append(secrets, k.texts[fileEndpoint], k.endpoint.RequestURI(), k.endpoint.EscapedPath())
	}
	for _, secret := range secrets {
		if cmp.Or(secret, "/") != "/" {
			text = strings.ReplaceAll(text, secret, redacted)
		}
	}
	return text
}
