package cli

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fleetloop/fleetloop/internal/version"
)

// upProgram is the program that runs all components. fleetloop does not link them, because it would
// be twice as large.
const upProgram = "fleetloop-up"

// UpCommand returns the command "up", which replaces this process with the program fleetloop-up. So
// that program has the arguments, environment, terminal and signals of this one, and its exit code.
func UpCommand() *cobra.Command {
	up := &cobra.Command{
		Use:   "up",
		Short: "Run all components on this machine",
		Long: "Run all components on this machine with the program " + upProgram + ", which is in the directory of fleetloop\n" +
			"or on the PATH, and has the same version.",
		DisableFlagParsing: true, // they are those of fleetloop-up
		RunE:               func(cmd *cobra.Command, args []string) error { return execUpProgram(cmd.Context(), args) },
		ValidArgsFunction:  completeUp,
	}
	addConnectionFlags(up.Flags()) // which fleetloop-up does not have: they hide those of the parent from completions
	up.Flags().VisitAll(func(f *pflag.Flag) { f.Hidden = true })
	up.SetHelpFunc(func(cmd *cobra.Command, _ []string) { // for "fleetloop help up"
		err := execUpProgram(cmd.Context(), []string{"--help"})
		cmd.Println(cmd.Long)
		printError(cmd.ErrOrStderr(), err)
	})
	return up
}

// execUpProgram replaces this process with fleetloop-up. It returns only if that fails.
func execUpProgram(ctx context.Context, args []string) error {
	path, err := locateSameVersionUpProgram(os.Executable, exec.LookPath, version.Get())
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err // fleetloop-up would not know of a signal that came before it
	}
	err = syscall.Exec(path, append([]string{path}, args...), os.Environ()) //nolint:gosec // our own program
	return NewError(fmt.Errorf("start %s: %w", path, err), CodeFailed, "run "+path+" to see why")
}

// locateSameVersionUpProgram returns the path of fleetloop-up, which is beside this executable or else on the PATH.
// It must be built from the same source as this program, self.
func locateSameVersionUpProgram(
	executable func() (string, error),
	lookPath func(string) (string, error),
	self version.Build,
) (string, error) {
	own, err := executable()
	if err != nil {
		return "", fmt.Errorf("find path of this executable: %w", err)
	}
	dir := filepath.Dir(own)
	path := filepath.Join(dir, upProgram)
	if _, err := os.Stat(path); err != nil {
		if path, err = lookPath(upProgram); err != nil {
			return "", NewError(fmt.Errorf("the program %s, which runs all components, is neither in %s nor on the PATH", upProgram, dir),
				CodePrecondition, adviseUpInstall(self))
		}
	}
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return "", NewError(fmt.Errorf("read version of %s: %w", path, err), CodePrecondition, adviseUpInstall(self))
	}
	if found := version.Of(info); !found.IsSameSource(self) {
		return "", NewError(fmt.Errorf("%s has version %s, but fleetloop has version %s", path, found.Name(), self.Name()),
			CodePrecondition, adviseUpInstall(self))
	}
	return path, nil
}

// adviseUpInstall returns how to install the fleetloop-up of a build.
func adviseUpInstall(self version.Build) string {
	if self.Module == "" {
		return "run 'make build' in the source of Fleetloop, which builds both programs"
	}
	return "go install github.com/fleetloop/fleetloop/cmd/" + upProgram + "@" + self.Module
}

// completeUp asks fleetloop-up for completions, which sends no requests for them. If it fails there are none, because a completion
// cannot show errors.
func completeUp(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	path, err := locateSameVersionUpProgram(os.Executable, exec.LookPath, version.Get())
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background() // cobra has no context if it was run without one
	}
	out, err := exec.CommandContext(ctx, path, append(append([]string{cobra.ShellCompRequestCmd}, args...), toComplete)...).Output() //nolint:gosec // our own program
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return parseCompletions(out)
}

// parseCompletions parses the output of cobra's hidden command: a completion per line, then a colon
// and the directive.
func parseCompletions(out []byte) ([]cobra.Completion, cobra.ShellCompDirective) {
	i := bytes.LastIndexByte(out, ':')
	directive, err := strconv.Atoi(strings.TrimSpace(string(out[i+1:])))
	if i < 0 || err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var found []cobra.Completion
	for line := range strings.Lines(string(out[:i])) {
		found = append(found, strings.TrimSuffix(line, "\n"))
	}
	return found, cobra.ShellCompDirective(directive)
}
