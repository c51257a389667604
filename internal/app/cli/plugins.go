package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/fleetloop/fleetloop/internal/app/terminal"
)

// completionRequests returns the hidden commands that shells run.
func completionRequests() []string {
	return []string{cobra.ShellCompRequestCmd, cobra.ShellCompNoDescRequestCmd}
}

// cobraCommands returns the commands that cobra adds when it runs.
func cobraCommands() []string { return append(completionRequests(), "help", "completion") }

// searchPath returns the value of PATH, empty if plugins are off.
func (e Env) searchPath() string {
	if e.ExecPlugin == nil || e.LookupEnv == nil {
		return ""
	}
	path, _ := e.LookupEnv("PATH")
	return path
}

// runPlugin runs the plugin that args name, if no command of ours has the name.
func (e Env) runPlugin(ctx context.Context, root *cobra.Command, args []string) (code int, found bool, err error) {
	if len(args) == 0 || isCommand(root, args[0]) {
		return 0, false, nil
	}
	file, words, ok := findPlugin(e.searchPath(), args)
	if !ok {
		return 0, false, nil
	}
	if err := ctx.Err(); err != nil {
		return 0, true, err // the plugin would not know of a signal that came before it
	}
	code, err = e.ExecPlugin(file, args[words:])
	return code, true, err
}

func isCommand(root *cobra.Command, word string) bool {
	return slices.Contains(cobraCommands(), word) ||
		slices.ContainsFunc(root.Commands(), func(c *cobra.Command) bool { return c.Name() == word || c.HasAlias(word) })
}

// rejectUnknownCommandOrPlugin is the check of the arguments of the root. Run has looked for plugins before.
func (s *session) rejectUnknownCommandOrPlugin(cmd *cobra.Command, args []string) error {
	if _, words, ok := findPlugin(s.env.searchPath(), args); ok {
		return usageErrorf(cmd, "%q is a plugin; its name must come before all flags", strings.Join(args[:words], " "))
	}
	return RejectUnknownCommand(cmd, args)
}

// ExecPlugin runs a plugin with the environment of this process. On Unix the plugin replaces the process, so that it
// has its terminal and signals; ExecPlugin returns only if that fails.
func ExecPlugin(file string, args []string) (code int, err error) {
	if runtime.GOOS == "windows" {
		return runPluginAsChild(file, args)
	}
	err = syscall.Exec(file, append([]string{file}, args...), os.Environ()) //nolint:gosec // the user selects the program
	return 0, newPluginError(file, err)
}

// runPluginAsChild runs a plugin where a process cannot be replaced. The system sends an interrupt to both.
func runPluginAsChild(file string, args []string) (code int, err error) {
	cmd := exec.Command(file, args...) //nolint:gosec,noctx // the user selects the program, and ends it
	cmd.Stdin = os.Stdin
	cmd.Stdout = os.Stdout
	cmd.Stderr = os.Stderr
	err = cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() > 0 {
		return exit.ExitCode(), nil
	}
	if err != nil {
		return 0, newPluginError(file, err)
	}
	return CodeOK, nil
}

func newPluginError(file string, err error) error {
	return NewError(fmt.Errorf("start plugin %s: %w", file, err), CodeFailed, "run "+file+" to see why")
}

func (e Env) addPluginCompletions(ctx context.Context, root *cobra.Command, args []string) {
	if len(args) == 0 || !slices.Contains(completionRequests(), args[0]) {
		return
	}
	path := e.searchPath()
	for _, p := range listPlugins(path, func(word string) bool { return isCommand(root, word) }) {
		if p.Warning == "" {
			addPluginCompletionCommand(ctx, root, path, p)
		}
	}
}

// addPluginCompletionCommand adds a command for each word of the name of a plugin. The last one completes the arguments of the
// plugin.
func addPluginCompletionCommand(ctx context.Context, root *cobra.Command, searchPath string, p plugin) {
	cmd := root
	for word := range strings.FieldsSeq(p.Name) {
		cmd = findOrAddCommand(cmd, word)
	}
	cmd.Short = "Plugin " + p.Path
	cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
		completer, ok := findPluginCompleter(searchPath, p.Name)
		if !ok {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return runPluginCompleter(ctx, completer, append(args, toComplete))
	}
}

// findOrAddCommand returns the command with a name below parent. If it is missing, it adds a command that does nothing.
func findOrAddCommand(parent *cobra.Command, name string) *cobra.Command {
	for _, cmd := range parent.Commands() {
		if cmd.Name() == name {
			return cmd
		}
	}
	added := &cobra.Command{Use: name, Short: "Plugin", DisableFlagParsing: true, Run: func(*cobra.Command, []string) {}}
	parent.AddCommand(added)
	return added
}

func runPluginCompleter(ctx context.Context, completer string, args []string) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, completer, args...) //nolint:gosec // a program of the user
	cmd.WaitDelay = 100 * time.Millisecond              // its own processes may keep its output open
	out, err := cmd.Output()
	if err != nil {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return parseCompletions(out)
}

func newPluginCommand(s *session) *cobra.Command {
	formats := []string{terminal.FormatTable, terminal.FormatJSON, terminal.FormatYAML, terminal.FormatName}
	var format string
	list := &cobra.Command{
		Use:               "list",
		Short:             "List the plugins on the PATH, and why some never run",
		Example:           "  fleetloop plugin list\n  fleetloop plugin list -o name",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := CheckFormat(cmd, format, formats); err != nil {
				return err
			}
			return s.printPlugins(cmd.Root(), format)
		},
	}
	AddOutputFlag(list, &format, formats)
	parent := &cobra.Command{
		Use:   "plugin",
		Short: "List the plugins of this command line",
		Long: "A plugin is an executable on the PATH whose name begins with fleetloop-. If there is no command hello, 'fleetloop hello\n" +
			"--twice' runs fleetloop-hello with the argument --twice and this environment. The words of a name are joined by dashes,\n" +
			"and a dash of a word is an underscore: 'fleetloop a b-c' runs fleetloop-a-b_c or else fleetloop-a. Flags follow the name.\n\n" +
			"The program fleetloop_complete-hello completes the arguments of hello, in the way of kubectl_complete-hello.",
		Args: RejectUnknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	parent.AddCommand(list)
	return parent
}

// printPlugins prints all plugins. Warnings go to standard error, unless the format has them.
func (s *session) printPlugins(root *cobra.Command, format string) error {
	all := listPlugins(s.env.searchPath(), func(word string) bool { return isCommand(root, word) })
	switch format {
	case terminal.FormatJSON, terminal.FormatYAML:
		return WriteYAMLOrJSON(s.env.Stdout, format, map[string]any{"items": append([]plugin{}, all...)})
	}
	if len(all) == 0 {
		s.printNote("No plugins found.")
		return nil
	}
	w := tabwriter.NewWriter(s.env.Stdout, 0, 0, 3, ' ', 0)
	if format == terminal.FormatTable {
		_, _ = fmt.Fprintln(w, "NAME\tPATH") // Flush returns the error
	}
	for _, p := range all {
		line := terminal.ReplaceUnprintable(p.Name)
		if format == terminal.FormatTable {
			line += "\t" + terminal.ReplaceUnprintable(p.Path)
		}
		_, _ = fmt.Fprintln(w, line)
	}
	err := w.Flush()
	for _, p := range all {
		if p.Warning != "" {
			path, reason := terminal.ReplaceUnprintable(p.Path), terminal.ReplaceUnprintable(p.Warning)
			s.printNote("warning: %s never runs: %s", path, reason)
		}
	}
	return err
}
