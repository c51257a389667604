package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fleetloop/fleetloop/internal/app/cli/resource"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// Config holds the servers and the credentials of the commands.
type Config struct {
	Connection
	Host
	SignIn

	Contexts map[string]Context `key:"contexts" validate:"dive" doc:"Named sets of these settings. Those of the current context override those of the file, not the environment and flags."`
}

// Connection is the connection to the fleet API. Every command has its flags.
type Connection struct {
	CurrentContext string          `key:"current_context" env:"FLEETLOOP_CONTEXT" flag:"context" doc:"Name of the context to use."`
	Server         string          `key:"server" env:"FLEETLOOP_SERVER" flag:"server" default:"http://127.0.0.1:8080" doc:"URL of the fleet API; host:port is http."`
	Token          settings.Secret `key:"token" env:"FLEETLOOP_TOKEN" doc:"Bearer token. Set at most one of token and token_file."`
	TokenFile      string          `key:"token_file" env:"FLEETLOOP_TOKEN_FILE" flag:"token-file" doc:"File with the bearer token; it can be replaced at any time."`
	CAFile         string          `key:"ca_file" env:"FLEETLOOP_CA_FILE" flag:"ca-file" doc:"File with the trusted CA certificates (PEM); by default those of the system."`
	ClientCert     string          `key:"client_certificate" env:"FLEETLOOP_CLIENT_CERTIFICATE" flag:"client-certificate" doc:"File with the client certificate (PEM)."`
	ClientKey      string          `key:"client_key" env:"FLEETLOOP_CLIENT_KEY" flag:"client-key" doc:"File with the key of the client certificate (PEM)."`
	InsecureTLS    bool            `key:"insecure_skip_tls_verify" env:"FLEETLOOP_INSECURE_SKIP_TLS_VERIFY" flag:"insecure-skip-tls-verify" doc:"Accept any certificate of the server. For tests only: others can read the token."`
	RequestTimeout time.Duration   `key:"request_timeout" env:"FLEETLOOP_REQUEST_TIMEOUT" flag:"request-timeout" default:"30s" validate:"gt=0" doc:"Timeout of one request."`
}

// Host selects the host cluster of executions and node faults. The commands on it have its flags, see HostFlags.
type Host struct {
	Kubeconfig  string `key:"kubeconfig" env:"KUBECONFIG" flag:"kubeconfig" doc:"kubeconfig file of the host cluster."`
	KubeContext string `key:"kube_context" env:"FLEETLOOP_KUBE_CONTEXT" flag:"kube-context" doc:"Name of the kubeconfig context."`
	Namespace   string `key:"namespace" env:"FLEETLOOP_NAMESPACE" flag:"namespace" doc:"Namespace of executions."`
}

// SignIn selects the OpenID Connect issuer of the command login, which has its flags.
type SignIn struct {
	Issuer    string   `key:"oidc_issuer" env:"FLEETLOOP_OIDC_ISSUER" flag:"oidc-issuer" validate:"omitempty,url" doc:"URL of the OpenID Connect issuer."`
	ClientID  string   `key:"oidc_client_id" env:"FLEETLOOP_OIDC_CLIENT_ID" flag:"oidc-client-id" doc:"Client ID of the command line at the issuer, a public client."`
	Scopes    []string `key:"oidc_scopes" env:"FLEETLOOP_OIDC_SCOPES" flag:"oidc-scopes" default:"openid,profile,email,offline_access" doc:"Scopes to request. With offline_access tokens are renewed."`
	TokenKind string   `key:"oidc_token" env:"FLEETLOOP_OIDC_TOKEN" flag:"oidc-token" default:"id_token" validate:"oneof=id_token access_token" doc:"Token for the fleet API: id_token or access_token."`
}

// A Context is a named set of settings. Those that are empty are not set.
type Context struct {
	Server         string          `key:"server" doc:"URL of the fleet API."`
	Token          settings.Secret `key:"token" doc:"Bearer token. Set at most one of token and token_file."`
	TokenFile      string          `key:"token_file" doc:"File with the bearer token."`
	CAFile         string          `key:"ca_file" doc:"File with the trusted CA certificates (PEM)."`
	ClientCert     string          `key:"client_certificate" doc:"File with the client certificate (PEM)."`
	ClientKey      string          `key:"client_key" doc:"File with the key of the client certificate (PEM)."`
	InsecureTLS    bool            `key:"insecure_skip_tls_verify" doc:"Accept any certificate of the server."`
	RequestTimeout time.Duration   `key:"request_timeout" validate:"gte=0" doc:"Timeout of one request."`
	Kubeconfig     string          `key:"kubeconfig" doc:"kubeconfig file of the host cluster."`
	KubeContext    string          `key:"kube_context" doc:"Name of the kubeconfig context."`
	Namespace      string          `key:"namespace" doc:"Namespace of executions."`
	Issuer         string          `key:"oidc_issuer" validate:"omitempty,url" doc:"URL of the OpenID Connect issuer."`
	ClientID       string          `key:"oidc_client_id" doc:"Client ID of the command line at the issuer."`
	Scopes         []string        `key:"oidc_scopes" doc:"Scopes to request."`
	TokenKind      string          `key:"oidc_token" validate:"omitempty,oneof=id_token access_token" doc:"Token for the fleet API: id_token or access_token."`
}

// nonEmptyValues returns what the context sets, by the keys of Config.
func (c Context) nonEmptyValues() map[string]string {
	all := map[string]string{
		"server": c.Server, "token": c.Token.Reveal(), "token_file": c.TokenFile, "ca_file": c.CAFile,
		"client_certificate": c.ClientCert, "client_key": c.ClientKey,
		"kubeconfig": c.Kubeconfig, "kube_context": c.KubeContext, "namespace": c.Namespace,
		"oidc_issuer": c.Issuer, "oidc_client_id": c.ClientID, "oidc_scopes": strings.Join(c.Scopes, ","), "oidc_token": c.TokenKind,
	}
	if c.InsecureTLS {
		all["insecure_skip_tls_verify"] = "true"
	}
	if c.RequestTimeout > 0 {
		all["request_timeout"] = c.RequestTimeout.String()
	}
	maps.DeleteFunc(all, func(_, value string) bool { return value == "" })
	return all
}

const (
	configFlag  = "config"
	configEnv   = "FLEETLOOP_CONFIG"
	contextFlag = "context"
)

func addConnectionFlags(flags *pflag.FlagSet) {
	flags.String(configFlag, "", "configuration `file` (env "+configEnv+"; default ~/.config/fleetloop/config.yaml, if it exists)")
	settings.AddFlags(flags, &Connection{})
	addImpersonationFlags(flags)
	addVerboseFlag(flags, new(bool))
}

// loadConfig reads the configuration of the command line.
func (s *session) loadConfig(cmd *cobra.Command) (Config, *settings.Report, error) {
	var cfg Config
	file, err := s.configPathIfExists(cmd)
	if err != nil {
		return cfg, nil, &failure{err: err, code: CodeUsage, next: "give an existing file, or no --config"}
	}
	source := settings.Source{File: file, Env: s.env.LookupEnv, Flags: cmd.Flags()}
	var outer Config // which says the context, and the values of the contexts
	if _, err := settings.Load(&outer, source); err != nil {
		return cfg, nil, &failure{err: err, code: CodeUsage, next: "run 'fleetloop config schema' for the JSON Schema of the file"}
	}
	if name := outer.CurrentContext; name != "" {
		c, ok := outer.Contexts[name]
		if !ok {
			return cfg, nil, newUnknownContextError(name, outer.Contexts)
		}
		source.Context = settings.Context{Name: name, Values: c.nonEmptyValues()}
	}
	report, err := settings.Load(&cfg, source)
	if err != nil {
		return cfg, nil, &failure{err: err, code: CodeUsage, next: "run 'fleetloop config schema' for the JSON Schema of the file"}
	}
	// The report keeps a pointer to cfg, so the result is a copy.
	inForce, err := keepHigherPrecedenceToken(cfg, report)
	return inForce, report, err
}

// LoadConfig returns the configuration in force, for commands of other packages.
func LoadConfig(cmd *cobra.Command, env Env) (Config, error) {
	cfg, _, err := (&session{env: env.withDefaults()}).loadConfig(cmd)
	return cfg, err
}

// newUnknownContextError reports a context that does not exist.
func newUnknownContextError(name string, contexts map[string]Context) error {
	known := slices.Sorted(maps.Keys(contexts))
	return &failure{
		err:  fmt.Errorf("there is no context %q%s", name, resource.SuggestWords(name, known)),
		code: CodeUsage, next: "run 'fleetloop config get-contexts' to list them, or 'fleetloop config set-context' to add one",
	}
}

// sourceOf returns the source of a setting.
func sourceOf(report *settings.Report, key string) settings.OriginSource {
	for _, o := range report.Origins() {
		if o.Key == key {
			return o.Source
		}
	}
	return settings.FromDefault
}

// keepHigherPrecedenceToken keeps the token or the token file, whichever has the stronger source, and drops the
// other. Giving one overrides the other.
func keepHigherPrecedenceToken(cfg Config, report *settings.Report) (Config, error) {
	if cfg.Token == "" || cfg.TokenFile == "" {
		return cfg, nil
	}
	ascending := []settings.OriginSource{settings.FromDefault, settings.FromFile, settings.FromContext, settings.FromEnv, settings.FromFlag}
	token, file := slices.Index(ascending, sourceOf(report, "token")), slices.Index(ascending, sourceOf(report, "token_file"))
	switch {
	case token > file:
		cfg.TokenFile = ""
	case token < file:
		cfg.Token = ""
	default:
		return cfg, &failure{
			err: errors.New("both token and token_file are set; set only one"), code: CodeUsage,
			next: "run 'fleetloop config show --origins' to see where each is set",
		}
	}
	return cfg, nil
}

// configPathIfExists returns the requested file, or the default file if it exists.
func (s *session) configPathIfExists(cmd *cobra.Command) (string, error) {
	path, requested := s.configPath(cmd)
	if path == "" {
		return "", nil
	}
	_, err := os.Stat(path)
	switch {
	case err != nil && requested:
		return "", fmt.Errorf("find the configuration file: %w", err)
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	}
	return path, nil
}

// get returns an environment variable, empty if it is not set.
func (e Env) get(name string) string {
	if value, ok := e.LookupEnv(name); ok {
		return value
	}
	return ""
}

// configPath returns the path of the configuration file, and whether it was requested. It is empty if there is no home.
func (s *session) configPath(cmd *cobra.Command) (path string, requested bool) {
	name := s.env.get(configEnv)
	if flag := cmd.Flags().Lookup(configFlag); flag != nil && flag.Changed {
		name = flag.Value.String()
	}
	if name != "" {
		return name, true
	}
	dir := s.env.get("XDG_CONFIG_HOME")
	if !filepath.IsAbs(dir) {
		home := s.env.get("HOME")
		if home == "" {
			return "", false
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "fleetloop", "config.yaml"), false
}

func newConfigCommand(s *session) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show and change the configuration of the command line, with its contexts",
		Long: "Show and change the configuration of the command line.\n\n" +
			"A context is a named set of settings: a server, its credentials and a host cluster. Flags override the\n" +
			"environment, which overrides the current context, which overrides the rest of the file.",
		Example: "  fleetloop config set-context prod --server=https://fleet.example.com --kube-context=prod\n" +
			"  fleetloop config use-context prod\n" +
			"  fleetloop --context=staging get clusters",
		Args: RejectUnknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	schema := &cobra.Command{
		Use:     "schema",
		Short:   "Print the JSON Schema of the configuration file",
		Example: "  fleetloop config schema > fleetloop.schema.json",
		Args:    cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			text, err := settings.Schema(&Config{}, "fleetloop command line")
			if err != nil {
				return err
			}
			_, err = s.env.Stdout.Write(append(text, '\n'))
			return err
		},
	}
	cmd.AddCommand(newConfigShowCommand(s), schema)
	addContextCommands(s, cmd)
	return cmd
}

// newConfigShowCommand returns a command that prints the configuration, without secrets.
func newConfigShowCommand(s *session) *cobra.Command {
	var origins bool
	cmd := &cobra.Command{
		Use:     "show",
		Aliases: []string{"view"}, // as kubectl names it
		Short:   "Print the effective configuration",
		Example: "  fleetloop config show --origins",
		Args:    cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, report, err := s.loadConfig(cmd)
			if err != nil {
				return err
			}
			return report.WriteYAML(s.env.Stdout, origins)
		},
	}
	cmd.Flags().BoolVar(&origins, "origins", false, "also print the source of each value")
	return cmd
}
