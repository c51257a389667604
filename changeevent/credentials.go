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
	// lookEvery is the interval at which credential files are read again.
	lookEvery = 5 * time.Second
	// maxCredential limits the size of a credential in bytes.
	maxCredential = 64 << 10
)

// keys holds the credentials in use, and the endpoint, which may be secret.
type keys struct {
	endpoint *url.URL
	auth     string // value of the authorization header
	body     string // credential in the request body
	signing  []byte
	texts    [fileCA]string // texts that the keys were parsed from
}

// A sinkFile file is a file that the client needs in order to send.
type sinkFile int

// The sink files, in the order of their names in String.
const (
	fileEndpoint sinkFile = iota
	fileToken
	fileKey
	fileSigning
	fileCA
	nFollowed
)

func (f sinkFile) String() string {
	return [nFollowed]string{"endpoint", "auth_token", "routing_key", "signing_key", "ca"}[f]
}

// readErrors holds the error of each file, or of the value that is configured instead.
type readErrors [nFollowed]error

func (t *readErrors) joinErrors() error { return errors.Join(t[:]...) }

// credentials provides the keys in use and reads their files again.
type credentials struct {
	cfg   Config
	log   *slog.Logger
	trust func() error // loads the CA certificates if they are not loaded yet; nil without a CA file

	current atomic.Pointer[keys]       // nil until all files were read once
	there   chan struct{}              // closed when all files were read once
	trouble atomic.Pointer[readErrors] // errors of the last read; nil if none

	mu     sync.Mutex
	looked atomic.Int64 // time of the last read, in Unix nanoseconds
}

// newCredentials reads all credentials. It accepts files that cannot be read yet, but an
// invalid value in the configuration is an error.
func newCredentials(cfg Config, log *slog.Logger, reloadRoots func() error) (*credentials, error) {
	c := &credentials{cfg: cfg, log: log, trust: reloadRoots, there: make(chan struct{})}
	k, failed := c.readKeysOrOldIfUnchanged(new(keys))
	c.looked.Store(time.Now().UnixNano())
	if failed == nil {
		c.current.Store(k)
		close(c.there)
		return c, nil
	}
	for f, err := range failed {
		if err != nil && c.filePath(sinkFile(f)) == "" {
			return nil, failed.joinErrors()
		}
	}
	c.trouble.Store(failed)
	log.Error("sink credential unreadable, events wait", "err", failed.joinErrors())
	return c, nil
}

// filePath returns the path of a file, or "" if none is configured.
func (c *credentials) filePath(f sinkFile) string {
	ca := c.cfg.CAFile
	if c.trust == nil {
		ca = ""
	}
	return [nFollowed]string{c.cfg.EndpointFile, c.cfg.AuthTokenFile, c.cfg.RoutingKeyFile, c.cfg.SigningKeyFile, ca}[f]
}

// hasFiles reports whether any file is configured.
func (c *credentials) hasFiles() bool {
	for f := range nFollowed {
		if c.filePath(f) != "" {
			return true
		}
	}
	return false
}

// lastErrorByFile returns the error of the last read for each configured file, or nil if it
// was read.
func (c *credentials) lastErrorByFile() map[sinkFile]error {
	var out map[sinkFile]error
	failed := c.trouble.Load()
	for f := range nFollowed {
		if c.filePath(f) == "" {
			continue
		}
		if out == nil {
			out = make(map[sinkFile]error, nFollowed)
		}
		out[f] = nil
		if failed != nil {
			out[f] = failed[f]
		}
	}
	return out
}

// lastReadErrorText returns why there are no keys.
func (c *credentials) lastReadErrorText() string {
	if failed := c.trouble.Load(); failed != nil {
		return failed.joinErrors().Error()
	}
	return ""
}

// currentKeysRereadIfDue returns the keys in use. It reads the files again if the last read is older
// than lookEvery. It must be called only after there is closed.
func (c *credentials) currentKeysRereadIfDue(ctx context.Context) *keys {
	if c.hasFiles() {
		c.rereadIfDue(ctx)
	}
	return c.current.Load()
}

func (c *credentials) rereadIfDue(ctx context.Context) {
	if !c.isReadDue() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isReadDue() {
		c.rereadFiles(ctx)
	}
}

// isReadDue reports whether the files must be read again, also if the clock was set back
// since the last read.
func (c *credentials) isReadDue() bool {
	since := time.Now().UnixNano() - c.looked.Load()
	return since >= int64(lookEvery) || since < 0
}

// renewKeys returns the keys after the sink rejected some, and whether they differ, so
// that a retry makes sense.
func (c *credentials) renewKeys(ctx context.Context, refused *keys) (k *keys, renewed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current.Load() == refused {
		c.rereadFiles(ctx)
	}
	k = c.current.Load()
	return k, k != refused
}

// rereadUnlessPresent reads the files once more if needed, and reports whether keys are
// available.
func (c *credentials) rereadUnlessPresent(ctx context.Context) (present bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current.Load() == nil {
		c.rereadFiles(ctx)
	}
	return c.current.Load() != nil
}

// rereadFiles reads the files again. If one cannot be read, for example while it is
// replaced, the last keys stay in use.
func (c *credentials) rereadFiles(ctx context.Context) {
	defer c.looked.Store(time.Now().UnixNano()) // set at the end, so that concurrent callers wait for the new keys
	old := c.current.Load()
	k, failed := c.readKeysOrOldIfUnchanged(cmp.Or(old, new(keys)))
	before := c.trouble.Swap(failed)
	switch {
	case failed != nil && before != nil && failed.joinErrors().Error() == before.joinErrors().Error(): // already logged
	case failed != nil && old == nil:
		c.log.ErrorContext(ctx, "sink credential unreadable, events wait", "err", failed.joinErrors())
	case failed != nil:
		c.log.WarnContext(ctx, "sink credential unreadable, using the last one", "err", failed.joinErrors())
	case old == nil:
		c.current.Store(k)
		close(c.there)
		c.log.InfoContext(ctx, "sink credential read, sending pending events")
	case k != old:
		c.current.Store(k)
		c.log.InfoContext(ctx, "sink credential changed")
	}
}

// readKeysOrOldIfUnchanged reads the current keys. It returns old if nothing has changed.
func (c *credentials) readKeysOrOldIfUnchanged(old *keys) (current *keys, problem *readErrors) {
	var k keys
	var failed readErrors

	// Read all of them, so that the error names every file that is unreadable.
	k.texts[fileEndpoint], failed[fileEndpoint] = fileContentOrValue("Endpoint", c.cfg.Endpoint, c.cfg.EndpointFile)
	k.texts[fileToken], failed[fileToken] = fileContentOrValue("AuthToken", c.cfg.AuthToken, c.cfg.AuthTokenFile)
	k.texts[fileKey], failed[fileKey] = fileContentOrValue("RoutingKey", c.cfg.RoutingKey.Reveal(), c.cfg.RoutingKeyFile)
	k.texts[fileSigning], failed[fileSigning] = fileContentOrValue("SigningKey", "", c.cfg.SigningKeyFile)
	if failed[fileEndpoint] == nil {
		k.endpoint, failed[fileEndpoint] = parseAndCheckEndpoint(
			k.texts[fileEndpoint], c.cfg.AllowHTTP, c.cfg.AllowHosts...)
	}
	if failed[fileKey] == nil {
		failed[fileKey] = validateRoutingKey(c.cfg.Format, k.texts[fileKey])
	}
	if c.trust != nil {
		failed[fileCA] = c.trust()
	}
	if failed.joinErrors() != nil {
		return nil, &failed
	}
	if k.texts == old.texts {
		return old, nil
	}
	k.auth = withScheme(c.cfg.AuthScheme, k.texts[fileToken])
	k.body = k.texts[fileKey]
	k.signing = []byte(k.texts[fileSigning])
	return &k, nil
}

// withScheme puts the scheme before a token, unless the token already begins with it.
func withScheme(scheme, token string) string {
	if scheme == "" || token == "" || strings.HasPrefix(token, scheme+" ") {
		return token
	}
	return scheme + " " + token
}

// fileContentOrValue returns value, or the content of file if one is set. It removes one line break at
// the end, as editors and secrets often add one.
func fileContentOrValue(what, value, file string) (string, error) {
	if file != "" {
		data, err := readSmallFile(file)
		if err != nil {
			return "", fmt.Errorf("read file of %s: %w", what, err)
		}
		value = string(bytes.TrimPrefix(data, []byte("\xEF\xBB\xBF")))
	}
	value = strings.TrimSuffix(strings.TrimSuffix(value, "\n"), "\r")
	if file != "" && value == "" {
		return "", fmt.Errorf("read file of %s: %q is empty", what, file)
	}
	return value, rejectControlCharacters(what, value)
}

func readSmallFile(name string) ([]byte, error) {
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

// redactKeys removes the credentials from a text of a sink, a proxy or a library.
func (k *keys) redactKeys(text string) string {
	if text == "" { // of every accepted request
		return ""
	}
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
