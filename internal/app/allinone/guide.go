package allinone

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// guideFile is the file name of the guide in the data directory of a demo.
const guideFile = "try.sh"

// guide holds the example commands of a demo, for use in another terminal. It is a file for a shell
// to source, because the live view covers earlier output and the required folders and ports are too
// long to type.
type guide struct {
	path      []string // directories with programs
	console   string   // the URL of its page, or empty
	variables []variable
	sections  []section
}

type variable struct{ name, value string }

type section struct {
	about    string
	commands []string
}

// setVariable adds a variable unless its value is empty.
func (g *guide) setVariable(name, value string) {
	if value != "" {
		g.variables = append(g.variables, variable{name, value})
	}
}

// addSection adds example commands under a title.
func (g *guide) addSection(about string, commands ...string) {
	g.sections = append(g.sections, section{about, commands})
}

// formatText returns the example commands for users.
func (g *guide) formatText() string {
	var b strings.Builder
	if g.console != "" {
		b.WriteString("console  " + g.console + "\n")
	}
	for _, s := range g.sections {
		b.WriteString(s.about + ":\n  " + strings.Join(s.commands, "\n  ") + "\n")
	}
	return b.String()
}

// formatScript returns a script that sets the variables and prints the example commands.
func (g *guide) formatScript() string {
	const end = "END_OF_WHAT_TO_TRY"
	var b strings.Builder
	b.WriteString("# Commands to try while fleetloop up runs. Source this file in a shell.\n")
	for _, dir := range g.path {
		b.WriteString("PATH=" + quoteShell(dir) + ":$PATH\n")
	}
	b.WriteString("export PATH\n")
	b.WriteString(formatExports(g.variables))
	b.WriteString("cat <<'" + end + "'\n" + g.formatText() + end + "\n")
	return b.String()
}

// formatExports returns the lines of a shell that set variables.
func formatExports(variables []variable) string {
	var b strings.Builder
	for _, v := range variables {
		b.WriteString("export " + v.name + "=" + quoteShell(v.value) + "\n")
	}
	return b.String()
}

// writeScript writes the guide to a folder and returns the command that sources it.
func (g *guide) writeScript(dir string) (sourceCommand string, err error) {
	file := filepath.Join(dir, guideFile)
	if err := os.WriteFile(file, []byte(g.formatScript()), 0o600); err != nil { // it may contain a password
		return "", fmt.Errorf("write commands to try: %w", err)
	}
	return formatSourceCommand(file), nil
}

func formatSourceCommand(file string) string {
	if strings.ContainsFunc(file, isShellSpecial) {
		file = quoteShell(file)
	}
	return ". " + file
}

// isShellSpecial reports whether a shell may interpret a character.
func isShellSpecial(r rune) bool {
	return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+", r)
}

func quoteShell(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// newGuide returns the example commands for the loop.
func (l *components) newGuide() (*guide, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find path of this executable: %w", err)
	}
	g := &guide{path: []string{filepath.Dir(self)}, console: l.console}
	g.addSection("clusters",
		"fleetloop get clusters",
		"fleetloop describe cluster us-east-01",
		"fleetloop changes -f",
	)
	g.setVariable("FLEETLOOP_SERVER", l.address)
	g.setVariable("CONSOLE", l.console)
	if l.adapterEnv != "" {
		g.addSection("your own adapter, in its terminal", "("+formatSourceCommand(l.adapterEnv)+" && go run .)")
	}
	if l.host != nil {
		l.addHostClusterToGuide(g)
	}
	return g, nil
}

// addHostClusterToGuide adds the variables and the example commands for the host cluster.
func (l *components) addHostClusterToGuide(g *guide) {
	// The assets come last, so that the kubectl of the user has priority.
	g.path = append([]string{l.host.bed.Assets()}, g.path...)
	g.setVariable("KUBECONFIG", l.host.bed.AdminKubeconfig())
	for _, name := range slices.Sorted(maps.Keys(l.host.kubeconfigs)) {
		g.setVariable(strings.ToUpper(name), l.host.kubeconfigs[name])
	}
	g.setVariable("REPORTS", l.host.reports)
	g.setVariable("AUDIT", l.audit)

	kubeconfigFlag := func(user string) string { return "--kubeconfig $" + strings.ToUpper(user) }
	g.addSection("sentinels", "kubectl get sentinelconfigs")
	g.addSection("executions: alice requests, bob approves", l.host.exampleExecutionCommands(kubeconfigFlag)...)
	if l.audit != "" {
		g.addSection("audit of executions", "DATABASE_URL=$AUDIT fleetloop audit get --execution scale-web")
	}
	g.addSection("node faults", faultExampleCommands("$REPORTS", "")...)
}
