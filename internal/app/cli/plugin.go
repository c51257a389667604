package cli

import (
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

const (
	programName       = "fleetloop"
	pluginName        = "kubectl fleetloop"
	pluginFile        = "kubectl-fleetloop"
	pluginCompletions = "kubectl_complete-fleetloop"
)

// ProgramArgs returns what the user types to run the program, and its arguments. Under the name kubectl-fleetloop the
// program is a plugin of kubectl, and under the name kubectl_complete-fleetloop it is the program that kubectl asks for
// completions of the plugin.
func ProgramArgs(osArgs []string) (program string, args []string) {
	if len(osArgs) == 0 {
		return programName, nil
	}
	args = osArgs[1:]
	switch strings.TrimSuffix(filepath.Base(osArgs[0]), ".exe") {
	case pluginFile:
		return pluginName, args
	case pluginCompletions:
		return pluginName, append([]string{cobra.ShellCompRequestCmd}, args...)
	}
	return programName, args
}

// commandLine matches the beginning of one of our command lines in a text, also if it has the name of the plugin already.
var commandLine = regexp.MustCompile(`(^|[^\w./-])(?:kubectl )?` + programName + ` ([a-z-])`)

// nameProgram writes the command lines in a text as the user types them.
func (e Env) nameProgram(text string) string {
	if e.Program == "" || e.Program == programName {
		return text
	}
	return commandLine.ReplaceAllString(text, "${1}"+e.Program+" ${2}")
}

// renameProgramInHelp gives the program its name in usage lines, examples and descriptions.
func (e Env) renameProgramInHelp(cmd *cobra.Command) {
	if e.Program == "" || e.Program == programName {
		return
	}
	if !cmd.HasParent() {
		cmd.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: e.Program}
	}
	cmd.Example, cmd.Long, cmd.Short = e.nameProgram(cmd.Example), e.nameProgram(cmd.Long), e.nameProgram(cmd.Short)
	for _, sub := range cmd.Commands() {
		e.renameProgramInHelp(sub)
	}
}
