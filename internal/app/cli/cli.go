// Package cli is the fleetloop command line: it shows and changes what a
// fleet API keeps.
//
// Data goes to standard output and nothing else does; progress, warnings and
// errors go to standard error. Each kind of failure has an exit code, see
// ExitCodes. Nothing here reads the process's environment or terminal by
// itself: all of that comes in an Env, so a command is a function of it and of
// what the server answers.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fleetloop/fleetloop/internal/app/process"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
	"github.com/fleetloop/fleetloop/internal/fleetclient"
	"github.com/fleetloop/fleetloop/internal/version"
)

// Env is the world around a command.
type Env struct {
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer

	// LookupEnv gives a variable of the environment. Nil means that there
	// are none.
	LookupEnv func(name string) (value string, ok bool)

	// Terminal tells whether Stdout is a terminal.
	Terminal bool

	// Progress tells whether Stderr is a terminal, on which the progress of
	// long commands is shown.
	Progress bool

	// Now is the clock. Nil means time.Now.
	Now func() time.Time

	// Wrap stands around the HTTP transport, or in its place. It may be nil.
	Wrap func(http.RoundTripper) http.RoundTripper
}

// Command gives the command line. Its caller adds further commands to it, and
// runs it with Run.
func Command(env Env) *cobra.Command {
	if env.LookupEnv == nil {
		env.LookupEnv = func(string) (string, bool) { return "", false }
	}
	if env.Now == nil {
		env.Now = time.Now
	}
	s := &session{env: env}
	root := &cobra.Command{
		Use:   "fleetloop",
		Short: "Manage fleets of Kubernetes clusters",
		Long: "Manage fleets of Kubernetes clusters: clusters, node pools, executions and node faults.\n\n" +
			"Name a resource by its kind and its name or id: cluster eu-1, cluster/eu-1, nodepool eu-1/workers.\n\n" +
			exitCodeHelp(),
		SilenceErrors: true,
		SilenceUsage:  true,

		SuggestionsMinimumDistance: 2,

		Args: noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(env.Stdin)
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usageError(cmd, err) })
	addConnectionFlags(root.PersistentFlags())
	process.AddVersionFlag(root, version.Get().Text("fleetloop"))
	_ = root.RegisterFlagCompletionFunc("config", cobra.FixedCompletions([]string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt))
	root.AddCommand(
		s.getCommand(), s.watchCommand(), s.describeCommand(), s.waitCommand(),
		s.createCommand(), s.loadCommand(), s.patchCommand(), s.labelCommand(), s.deleteCommand(),
		s.clustersCommand(), s.schemaCommand(), s.changesCommand(), s.auditCommand(),
		s.configCommand(), s.whoAmICommand(), s.versionCommand(),
	)
	return root
}

// Run runs root, which Command gave, tells the user about an error, and gives
// the exit code.
func Run(ctx context.Context, env Env, root *cobra.Command, args []string) int {
	begun := false
	root.PersistentPreRun = func(*cobra.Command, []string) { begun = true }
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return CodeOK
	}
	// What fails before anything ran is how the command was written.
	if _, told := errors.AsType[*failure](err); !begun && !told {
		err = usageError(cmd, err)
	}
	code := ExitCode(err)
	if code == CodeFailed && ctx.Err() != nil {
		code = CodeInterrupted // whatever it was that could not be finished
	}
	printError(env.Stderr, err)
	return code
}

// A session is one command under way.
type session struct {
	env Env
}

// newClient gives a client of the server that flags, environment and file name.
func (s *session) newClient(cmd *cobra.Command) (*fleetclient.Client, error) {
	cfg, _, err := s.loadConfig(cmd)
	if err != nil {
		return nil, err
	}
	client, err := fleetclient.New(fleetclient.Config{
		Endpoint:  cfg.Server,
		Token:     cfg.Token,
		TokenFile: cfg.TokenFile,
		CAFile:    cfg.CAFile,
		Timeout:   cfg.RequestTimeout,
		UserAgent: "fleetloop/" + version.Get().Version,
	}, fleetclient.Deps{Wrap: s.env.Wrap})
	if err != nil {
		return nil, &failure{err: err, code: CodeUsage, next: "run 'fleetloop config show --origins' to see each setting and its source"}
	}
	return client, nil
}

func (s *session) useColour() bool { return terminal.WantsColour(s.env.LookupEnv, s.env.Terminal) }

// printNote tells about progress.
func (s *session) printNote(format string, args ...any) {
	_, _ = fmt.Fprintf(s.env.Stderr, format+"\n", args...) // whoever closed it does not want to know
}

func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Errorf("unknown command %q", args[0])
	if like := cmd.SuggestionsFor(args[0]); len(like) > 0 {
		err = fmt.Errorf("%w; did you mean %s?", err, strings.Join(like, " or "))
	}
	return usageError(cmd, err)
}
