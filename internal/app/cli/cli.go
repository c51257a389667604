// Package cli is the fleetloop command line. It shows and changes the resources of a fleet API.
//
// Standard output receives only data. Progress, warnings and errors go to standard error. Each kind
// of failure has an exit code, see ExitCodes. The package reads neither the environment nor the
// terminal of the process directly: an Env holds both, so a command is a function of the Env and
// the responses of the server.
//
// Packages execcli and faultcli add the commands on the host cluster. They share its flags, its
// connection, and errors with advice: HostFlags and ExplainHostError.
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

	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/apiclient"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
	"github.com/fleetloop/fleetloop/internal/version"
)

// Env holds the inputs and outputs of a command.
type Env struct {
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer

	// LookupEnv returns an environment variable. Nil means an empty environment.
	LookupEnv func(name string) (value string, ok bool)

	// Terminal is true if Stdout is a terminal.
	Terminal bool

	// Progress is true if Stderr is a terminal, which enables progress output of long commands.
	Progress bool

	// Now is the clock. Nil means time.Now.
	Now func() time.Time

	// Wrap wraps or replaces the HTTP transport. It may be nil.
	Wrap func(http.RoundTripper) http.RoundTripper
}

// Command returns the command line. The caller adds further commands and runs it with Run.
func Command(env Env) *cobra.Command {
	if env.LookupEnv == nil {
		env.LookupEnv = func(string) (string, bool) { return "", false }
	}
	if env.Now == nil {
		env.Now = time.Now
	}
	env.Stdout = NewOutput(env.Stdout)
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

		Args: rejectUnknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(env.Stdin)
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usageError(cmd, err) })
	addConnectionFlags(root.PersistentFlags())
	terminal.AddVersionFlag(root, version.Get().Text("fleetloop"))
	_ = root.RegisterFlagCompletionFunc("config", cobra.FixedCompletions([]string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt))
	root.AddCommand(
		newGetCommand(s), newWatchCommand(s), newDescribeCommand(s), newHistoryCommand(s), newDiffCommand(s), newWaitCommand(s),
		newCreateCommand(s), newApplyCommand(s), newEditCommand(s), newExplainCommand(s), newLoadCommand(s), newPatchCommand(s), newLabelCommand(s), newDeleteCommand(s),
		newSummaryCommand(s), newStuckCommand(s), newClustersCommand(s), newSchemaCommand(s), newChangesCommand(s), newAuditCommand(s),
		newConfigCommand(s), newWhoAmICommand(s), newCanICommand(s), newVersionCommand(s),
	)
	return root
}

// Run runs root, the result of Command, prints any error and returns the exit code.
func Run(ctx context.Context, env Env, root *cobra.Command, args []string) int {
	begun := false
	out := NewOutput(root.OutOrStdout())
	root.PersistentPreRun = func(cmd *cobra.Command, _ []string) {
		begun = true
		out.begin(cmd)
	}
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	err = out.end(err)
	if err == nil {
		return CodeOK
	}
	// An error before the command ran is a usage error.
	if _, ok := errors.AsType[*failure](err); !begun && !ok {
		err = usageError(cmd, err)
	}
	code := ExitCode(err)
	if code == CodeFailed && ctx.Err() != nil {
		code = CodeInterrupted // any other error is a consequence
	}
	if !errors.Is(err, errRefused) && !errors.Is(err, errDiffers) { // the answer is printed
		printError(env.Stderr, err)
	}
	return code
}

// session is one running command.
type session struct {
	env Env
}

// newClient returns a client for the server from flags, environment and file.
func (s *session) newClient(cmd *cobra.Command) (*fleetclient.Client, error) {
	cfg, _, err := s.loadConfig(cmd)
	if err != nil {
		return nil, err
	}
	client, err := apiclient.New(apiclient.Config{
		Endpoint:  cfg.Server,
		Token:     cfg.Token,
		TokenFile: cfg.TokenFile,
		CAFile:    cfg.CAFile,
		Timeout:   cfg.RequestTimeout,
		UserAgent: "fleetloop/" + version.Get().Version,
		Wrap:      s.env.Wrap,
	})
	if err != nil {
		return nil, &failure{err: err, code: CodeUsage, next: "run 'fleetloop config show --origins' to see each setting and its source"}
	}
	return client, nil
}

func (s *session) useColour() bool { return terminal.WantsColour(s.env.LookupEnv, s.env.Terminal) }

// printNote prints progress.
func (s *session) printNote(format string, args ...any) {
	_, _ = fmt.Fprintf(s.env.Stderr, format+"\n", args...) // a closed stderr is no error
}

func rejectUnknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Errorf("unknown command %q", args[0])
	if like := cmd.SuggestionsFor(args[0]); len(like) > 0 {
		err = fmt.Errorf("%w; did you mean %s?", err, strings.Join(like, " or "))
	}
	return usageError(cmd, err)
}
