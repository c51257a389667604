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

	// Interactive is true if Stdin is a terminal that can answer questions.
	Interactive bool

	// Terminal is true if Stdout is a terminal.
	Terminal bool

	// TerminalHeight returns the number of lines of the terminal, or 0 if it is unknown. It may be nil.
	TerminalHeight func() int

	// Progress is true if Stderr is a terminal, which enables progress output of long commands.
	Progress bool

	// Program is what the user types to run the program. Empty means fleetloop.
	Program string

	// OpenBrowser opens a URL in the browser of the user. Nil means that there is none.
	OpenBrowser func(ctx context.Context, url string) error

	// ExecPlugin runs a plugin. Nil means that there are no plugins.
	ExecPlugin func(file string, args []string) (code int, err error)

	// HostToken authenticates to the host cluster. It replaces all credentials of the kubeconfig. Empty means those.
	HostToken string

	// Now is the clock. Nil means time.Now.
	Now func() time.Time

	// Wrap wraps or replaces the HTTP transport. It may be nil.
	Wrap func(http.RoundTripper) http.RoundTripper
}

func (e Env) withDefaults() Env {
	if e.LookupEnv == nil {
		e.LookupEnv = func(string) (string, bool) { return "", false }
	}
	if e.Now == nil {
		e.Now = time.Now
	}
	return e
}

// Command returns the command line. The caller adds further commands and runs it with Run.
func Command(env Env) *cobra.Command {
	env = env.withDefaults()
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

		Args: s.rejectUnknownCommandOrPlugin,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(env.Stdin)
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError(cmd, addFlagSuggestion(cmd, err))
	})
	root.SetHelpCommand(newHelpCommand())
	addConnectionFlags(root.PersistentFlags())
	terminal.AddVersionFlag(root, version.Get().Text("fleetloop"))
	s.addRootCompletions(root)
	s.addAllCommands(root)
	return root
}

// addRootCompletions completes the values of the flags that all commands have. It ignores errors, which occur only for
// unknown flags.
func (s *session) addRootCompletions(root *cobra.Command) {
	roles := cobra.FixedCompletions([]string{"viewer", "operator", "system"}, cobra.ShellCompDirectiveNoFileComp)
	yamlFiles := cobra.FixedCompletions([]string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt)
	_ = root.RegisterFlagCompletionFunc(contextFlag, s.completeContexts)
	_ = root.RegisterFlagCompletionFunc(asRoleFlag, roles)
	_ = root.RegisterFlagCompletionFunc("config", yamlFiles)
}

func (s *session) addAllCommands(root *cobra.Command) {
	// Resources.
	root.AddCommand(
		newGetCommand(s), newWatchCommand(s), newDescribeCommand(s), newHistoryCommand(s), newUndoCommand(s),
		newDiffCommand(s), newWaitCommand(s), newCreateCommand(s), newApplyCommand(s), newEditCommand(s),
		newExplainCommand(s), newLoadCommand(s), newPatchCommand(s), newLabelCommand(s), newDeleteCommand(s),
	)
	// The fleet.
	root.AddCommand(
		newSummaryCommand(s), newStuckCommand(s), newTopCommand(s), newClustersCommand(s), newSchemaCommand(s),
		newChangesCommand(s), newAuditCommand(s),
	)
	// The connection, and the program itself.
	root.AddCommand(
		newConfigCommand(s), newLoginCommand(s), newLogoutCommand(s), newWhoAmICommand(s), newCanICommand(s),
		newVersionCommand(s), newDoctorCommand(s), newAdapterCommand(s), newPluginCommand(s), newExitCodesTopic(),
	)
}

// Run runs root, the result of Command, or a plugin. It prints any error and returns the exit code.
func Run(ctx context.Context, env Env, root *cobra.Command, args []string) int {
	if code, found, err := env.runPlugin(ctx, root, args); found {
		if err != nil {
			printError(env.Stderr, err)
			return ExitCode(err)
		}
		return code
	}
	env.addPluginCompletions(ctx, root, args)

	// Before any command: check and fill the flags that all commands have, and open the output.
	lineIsValid := false // cobra has accepted the command line
	out := NewOutput(root.OutOrStdout())
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		lineIsValid = true
		if err := checkImpersonationFlags(cmd); err != nil {
			return err
		}
		if err := SetHostFlagsFromContext(env, cmd); err != nil {
			return err
		}
		out.startTemplateOutput(cmd)
		return nil
	}
	root.SetArgs(args)
	env.renameProgramInHelp(root)
	cmd, err := root.ExecuteContextC(ctx)
	err = out.finishTemplateOutput(err)
	if err == nil {
		return CodeOK
	}
	// An error before the command ran is one about the command line.
	if _, ok := errors.AsType[*failure](err); !lineIsValid && !ok {
		err = usageError(cmd, err)
	}
	if !errors.Is(err, errRefused) && !errors.Is(err, errDiffers) { // these two are answers, which are printed already
		var text strings.Builder
		printError(&text, err)
		_, _ = io.WriteString(env.Stderr, env.nameProgram(text.String())) // there is no other output
	}
	code := ExitCode(err)
	if code == CodeFailed && ctx.Err() != nil {
		return CodeInterrupted // the error is a consequence
	}
	return code
}

// session is one running command.
type session struct {
	env Env
}

// newClient returns a client for the server from flags, environment and file.
func (s *session) newClient(cmd *cobra.Command) (*fleetclient.Client, error) {
	access, err := s.newAccessFromConfigAndLogin(cmd)
	if err != nil {
		return nil, err
	}
	return access.client, nil
}

// NewFleetClient returns a client of the fleet API that the flags of cmd name, for commands of other packages.
func NewFleetClient(cmd *cobra.Command, env Env) (*fleetclient.Client, error) {
	return (&session{env: env.withDefaults()}).newClient(cmd)
}

func (s *session) useColour() bool { return terminal.WantsColour(s.env.LookupEnv, s.env.Terminal) }

// printNote prints progress.
func (s *session) printNote(format string, args ...any) {
	note := s.env.nameProgram(fmt.Sprintf(format, args...))
	_, _ = io.WriteString(s.env.Stderr, note+"\n") // a closed stderr is no error
}
