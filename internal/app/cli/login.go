package cli

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/oauth2"

	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
	consolesession "github.com/fleetloop/fleetloop/internal/console/session"
	"github.com/fleetloop/fleetloop/internal/settings"
)

const (
	// loginTimeout limits how long a person may take to sign in.
	loginTimeout = 10 * time.Minute
	// callbackPath is the path of the redirect URL, http://127.0.0.1:PORT/callback.
	callbackPath = "/callback"
	maxToken     = 64 << 10
)

var errLoginTimeout = errors.New("nobody has signed in in time")

// loginOptions holds the flags of login.
type loginOptions struct {
	device, stdin bool
	port          uint16
}

func newLoginCommand(s *session) *cobra.Command {
	var o loginOptions
	cmd := &cobra.Command{
		Use:   "login",
		Short: "Sign in to the fleet API with OpenID Connect, or store a token",
		Long: "Sign in at the OpenID Connect issuer of the context, in a browser on this machine, or with --device in one on any\n" +
			"machine. The tokens are kept beside the configuration file, for this context and server only, and renewed when they\n" +
			"expire. A token of a flag or of the environment overrides them.\n\n" +
			"The redirect URL of the client at the issuer is http://127.0.0.1/callback, with any port.",
		Example: "  fleetloop login --oidc-issuer=https://login.example.com --oidc-client-id=fleetloop\n" +
			"  fleetloop --context=prod login --device\n" +
			"  fleetloop login --token-stdin < token",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return s.logIn(cmd, o) },
	}
	settings.AddFlags(cmd.Flags(), &SignIn{})
	cmd.Flags().BoolVar(&o.device, "device", false, "sign in with a code, in a browser on any machine")
	cmd.Flags().BoolVar(&o.stdin, "token-stdin", false, "store the token on standard input")
	cmd.Flags().Uint16Var(&o.port, "callback-port", 0, "`port` on 127.0.0.1 for the redirect; 0 takes a free one")
	cmd.MarkFlagsMutuallyExclusive("device", "token-stdin")
	return cmd
}

func (s *session) logIn(cmd *cobra.Command, o loginOptions) error {
	if err := RejectImpersonation(cmd, "a login is for you"); err != nil {
		return err
	}
	a, err := s.newAccessFromConfigAndLogin(cmd)
	if err != nil {
		return err
	}
	defer a.client.CloseIdle()
	if a.store.path == "" {
		return &failure{
			err:  errors.New("there is no home directory for the tokens"),
			code: CodeUsage,
			next: "give a configuration file with --config",
		}
	}
	ctx, cancel := context.WithTimeoutCause(cmd.Context(), loginTimeout, errLoginTimeout)
	defer cancel()
	login, err := s.obtainLogin(ctx, a.cfg, o)
	if err != nil {
		return err
	}
	login.Context = a.cfg.CurrentContext
	login.Server = a.client.Endpoint()
	asUser, err := s.checkLoginIfReachable(ctx, a.client, login)
	if err != nil {
		return err
	}
	if err := a.store.put(ctx, login); err != nil {
		return fmt.Errorf("store the login: %w", err)
	}
	s.printNote("Logged in to %s%s.", a.cfg.Server, asUser)
	if isGiven(sourceOf(a.report, "token")) || isGiven(sourceOf(a.report, "token_file")) {
		s.printNote("warning: the token of the environment or a flag overrides this login")
	}
	return nil
}

// obtainLogin gets a token in the way that the flags select.
func (s *session) obtainLogin(ctx context.Context, cfg Config, o loginOptions) (login storedLogin, err error) {
	if o.stdin {
		return s.readLoginFromStdin()
	}
	if cfg.Issuer == "" || cfg.ClientID == "" {
		return login, &failure{
			err:  errors.New("the issuer and the client ID for the login are not set"),
			code: CodeUsage,
			next: "give --oidc-issuer and --oidc-client-id, or store them with 'fleetloop config set-context'; or use --token-stdin",
		}
	}
	login.Issuer = loginIssuer{URL: cfg.Issuer, ClientID: cfg.ClientID, Scopes: cfg.Scopes, Token: cfg.TokenKind}
	i, err := newIssuer(login.Issuer)
	if err != nil {
		return login, err
	}
	if o.device {
		login.Method = methodDevice
		login.Tokens, err = s.signInWithDevice(ctx, i)
	} else {
		login.Method = methodBrowser
		login.Tokens, err = s.signInWithBrowser(ctx, i, o.port)
	}
	if err != nil {
		return login, fmt.Errorf("sign in: %w", err)
	}
	return login, nil
}

// readLoginFromStdin reads a token from standard input.
func (s *session) readLoginFromStdin() (storedLogin, error) {
	text, err := io.ReadAll(io.LimitReader(s.env.Stdin, maxToken))
	token := strings.TrimSpace(string(text))
	if err == nil && token == "" {
		err = errors.New("it is empty")
	}
	if err != nil {
		return storedLogin{}, &failure{
			err:  fmt.Errorf("read the token from standard input: %w", err),
			code: CodeUsage,
			next: "fleetloop login --token-stdin < FILE",
		}
	}
	tokens := consolesession.Tokens{Bearer: token, Expires: parseJWTExpiry(token)}
	return storedLogin{Method: methodStdin, Tokens: tokens}, nil
}

// checkLoginIfReachable verifies that the server accepts a token, and returns its user as the end of a sentence. If the server is
// away, it cannot tell.
func (s *session) checkLoginIfReachable(ctx context.Context, client *fleetclient.Client, l storedLogin) (asUserText string, err error) {
	client, err = client.WithToken(fleetclient.StaticToken(l.Tokens.Bearer))
	if err != nil {
		return "", &failure{err: err, code: CodeUsage}
	}
	identity, err := client.WhoAmI(ctx)
	switch {
	case err == nil:
		return " as " + terminal.ReplaceUnprintable(identity.Subject), nil
	case errors.Is(err, fleetclient.ErrUnreachable), fleetclient.IsNotFound(err):
		s.printNote("warning: the server did not check the token: %v", err)
		return "", nil
	}
	return "", &failure{
		err:  fmt.Errorf("the server does not accept the token: %w", err),
		code: CodeFailed,
		next: "compare the issuer and the audience in the settings of the fleet API with --oidc-issuer and --oidc-client-id",
	}
}

// signInWithDevice shows a code, and waits until a person has entered it in a browser.
func (s *session) signInWithDevice(ctx context.Context, i *consolesession.Issuer) (consolesession.Tokens, error) {
	d, err := i.RequestDeviceCode(ctx)
	if err != nil {
		return consolesession.Tokens{}, err
	}
	s.printNote("Open %s and enter the code %s.", terminal.ReplaceUnprintable(d.URL), terminal.ReplaceUnprintable(d.UserCode))
	return i.WaitForDeviceSignIn(ctx, d)
}

// signInWithBrowser runs the authorization code flow with PKCE. The browser returns to a server on loopback, as
// RFC 8252 says.
func (s *session) signInWithBrowser(ctx context.Context, i *consolesession.Issuer, port uint16) (consolesession.Tokens, error) {
	// The server for the redirect of the browser.
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return consolesession.Tokens{}, err
	}
	redirect := "http://" + listener.Addr().String() + callbackPath
	state, nonce, verifier := rand.Text(), rand.Text(), oauth2.GenerateVerifier()
	codes := make(chan callback, 1)
	server := &http.Server{Handler: newCallbackHandler(state, codes), ReadHeaderTimeout: issuerTimeout}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener) // it ends with Shutdown
	}()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second) // the page is on its way
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close()
		}
		<-served
	}()

	// The sign-in.
	url, err := i.BuildAuthURL(ctx, redirect, state, nonce, verifier)
	if err != nil {
		return consolesession.Tokens{}, err
	}
	s.printNote("Sign in with the browser: %s\nWithout a browser on this machine, use 'fleetloop login --device'.", url)
	if s.env.OpenBrowser != nil {
		if err := s.env.OpenBrowser(ctx, url); err != nil {
			s.printNote("warning: the browser does not open: %v", err)
		}
	}
	select {
	case <-ctx.Done():
		return consolesession.Tokens{}, context.Cause(ctx)
	case c := <-codes:
		if c.err != nil {
			return consolesession.Tokens{}, c.err
		}
		return i.ExchangeCode(ctx, redirect, c.code, nonce, verifier)
	}
}

// A callback is the answer of the issuer to an authorization request.
type callback struct {
	code string
	err  error
}

// newCallbackHandler returns the handler of the redirect URL. Only the first request with the right state counts:
// other programs and pages on this machine can send requests as well.
func newCallbackHandler(state string, codes chan<- callback) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+callbackPath, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		if subtle.ConstantTimeCompare([]byte(q.Get("state")), []byte(state)) != 1 {
			http.Error(w, "This is not the answer to the sign-in of this command.", http.StatusBadRequest)
			return
		}
		c := callback{code: q.Get("code")}
		text := "You are signed in. Close this page and return to the command line."
		if problem := q.Get("error"); problem != "" || c.code == "" {
			c.err = fmt.Errorf("the issuer refused: %q", problem)
			text = "The sign-in failed. Return to the command line."
		}
		select {
		case codes <- c:
		default: // there is an answer already
		}
		_, _ = io.WriteString(w, text)
	})
	return mux
}

// OpenBrowser opens a URL in the browser of the desktop. It does not wait until the browser ends.
func OpenBrowser(_ context.Context, url string) error {
	program := "xdg-open"
	if runtime.GOOS == "darwin" {
		program = "open"
	}
	cmd := exec.Command(program, url) //nolint:gosec,noctx // the URL is that of the issuer; the browser outlives the command
	if err := cmd.Start(); err != nil {
		return err
	}
	return cmd.Process.Release()
}

func newLogoutCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:     "logout",
		Example: "  fleetloop --context=prod logout",
		Short:   "Delete the tokens of the login",
		Long: "Delete the tokens of the login for the context and the server, and revoke the refresh token at the issuer, if it offers\n" +
			"that. The session of the browser at the issuer stays: end it there.",
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := RejectImpersonation(cmd, "a login is yours"); err != nil {
				return err
			}
			a, err := s.newAccessFromConfigAndLogin(cmd)
			if err != nil {
				return err
			}
			if a.store.path == "" {
				s.printNote("There is no login for %s.", a.cfg.Server)
				return nil
			}
			deleted, existed, err := a.store.deleteLogin(cmd.Context(), a.cfg.CurrentContext, a.client.Endpoint())
			switch {
			case err != nil:
				return fmt.Errorf("delete the login: %w", err)
			case !existed:
				s.printNote("There is no login for %s.", a.cfg.Server)
			default:
				s.revokeRefreshToken(cmd.Context(), deleted)
				s.printNote("Logged out of %s.", a.cfg.Server)
			}
			return nil
		},
	}
}

// revokeRefreshToken revokes the refresh token of a deleted login. A copy of it would otherwise give tokens until it expires.
func (s *session) revokeRefreshToken(ctx context.Context, l storedLogin) {
	if l.Tokens.Refresh == "" {
		return
	}
	i, err := newIssuer(l.Issuer)
	if err == nil {
		err = i.RevokeRefreshToken(ctx, l.Tokens.Refresh)
	}
	if err != nil && !errors.Is(err, consolesession.ErrNoRevocation) {
		s.printNote("warning: the refresh token remains valid at the issuer: %v", err)
	}
}
