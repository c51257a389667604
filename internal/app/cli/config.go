package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fleetloop/fleetloop/internal/settings"
)

// Config holds the server and the credentials of the commands.
type Config struct {
	Server         string          `key:"server" env:"FLEETLOOP_SERVER" flag:"server" default:"http://127.0.0.1:8080" doc:"URL of the fleet API; host:port is http."`
	Token          settings.Secret `key:"token" env:"FLEETLOOP_TOKEN" doc:"Bearer token. Set at most one of token and token_file."`
	TokenFile      string          `key:"token_file" env:"FLEETLOOP_TOKEN_FILE" flag:"token-file" doc:"File with the bearer token; it can be replaced at any time."`
	CAFile         string          `key:"ca_file" env:"FLEETLOOP_CA_FILE" flag:"ca-file" doc:"File with the trusted CA certificates (PEM); by default those of the system."`
	RequestTimeout time.Duration   `key:"request_timeout" env:"FLEETLOOP_REQUEST_TIMEOUT" flag:"request-timeout" default:"30s" validate:"gt=0" doc:"Timeout of one request."`
}

const (
	configFlag = "config"
	configEnv  = "FLEETLOOP_CONFIG"
)

func addConnectionFlags(flags *pflag.FlagSet) {
	flags.String(configFlag, "", "configuration `file` (env "+configEnv+"; default ~/.config/fleetloop/config.yaml, if it exists)")
	settings.AddFlags(flags, &Config{})
}

// loadConfig reads the configuration of the command line.
func (s *session) loadConfig(cmd *cobra.Command) (Config, *settings.Report, error) {
	var cfg Config
	file, err := s.configFile(cmd)
	if err != nil {
		return cfg, nil, &failure{err: err, code: CodeUsage, next: "give an existing file, or no --config"}
	}
	report, err := settings.Load(&cfg, settings.Source{File: file, Env: s.env.LookupEnv, Flags: cmd.Flags()})
	if err != nil {
		return cfg, nil, &failure{err: err, code: CodeUsage, next: "run 'fleetloop config schema' for the JSON Schema of the file"}
	}
	// The report keeps a pointer to cfg, so the result is a copy.
	inForce, err := keepStrongerTokenSetting(cfg, report)
	return inForce, report, err
}

// keepStrongerTokenSetting keeps the token or the token file, whichever has the stronger source, and drops the
// other. Giving one overrides the other.
func keepStrongerTokenSetting(cfg Config, report *settings.Report) (Config, error) {
	if cfg.Token == "" || cfg.TokenFile == "" {
		return cfg, nil
	}
	strength := map[string]int{}
	for _, o := range report.Origins() {
		strength[o.Key] = slices.Index([]settings.OriginSource{settings.FromDefault, settings.FromFile, settings.FromEnv, settings.FromFlag}, o.Source)
	}
	switch token, file := strength["token"], strength["token_file"]; {
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

// configFile returns the requested file, or the default file if it exists.
func (s *session) configFile(cmd *cobra.Command) (string, error) {
	name, _ := s.env.LookupEnv(configEnv)
	if flag := cmd.Flags().Lookup(configFlag); flag != nil && flag.Changed {
		name = flag.Value.String()
	}
	if name != "" {
		if _, err := os.Stat(name); err != nil {
			return "", fmt.Errorf("find the configuration file: %w", err)
		}
		return name, nil
	}
	dir, _ := s.env.LookupEnv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(dir) {
		home, _ := s.env.LookupEnv("HOME")
		if home == "" {
			return "", nil
		}
		dir = filepath.Join(home, ".config")
	}
	name = filepath.Join(dir, "fleetloop", "config.yaml")
	if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return name, nil
}

func newConfigCommand(s *session) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show the configuration of the command line",
		Args:  rejectUnknownCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var origins bool
	show := &cobra.Command{
		Use:   "show",
		Short: "Print the effective configuration",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, report, err := s.loadConfig(cmd)
			if err != nil {
				return err
			}
			return report.Write(s.env.Stdout, origins)
		},
	}
	show.Flags().BoolVar(&origins, "origins", false, "also print the source of each value")
	schema := &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the configuration file",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			text, err := settings.Schema(&Config{}, "fleetloop command line")
			if err != nil {
				return err
			}
			_, err = s.env.Stdout.Write(append(text, '\n'))
			return err
		},
	}
	cmd.AddCommand(show, schema)
	return cmd
}
