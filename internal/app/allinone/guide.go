package allinone

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// guideFile is what the guide of a demo is called, in the folder of its data.
const guideFile = "try.sh"

// A guide is what can be tried beside a demo, in another terminal. It is a file
// for a shell to read: the live view covers what was printed before it, and what
// the commands need to know, such as folders and ports, is too long to type.
type guide struct {
	path      []string // folders with programs
	variables []variable
	sections  []section
}

type variable struct{ name, value string }

type section struct {
	about    string
	commands []string
}

// setVariable adds a variable, unless it has no value.
func (g *guide) setVariable(name, value string) {
	if value != "" {
		g.variables = append(g.variables, variable{name, value})
	}
}

// formatText is what there is to try, for people.
func (g *guide) formatText() string {
	var b strings.Builder
	for _, s := range g.sections {
		b.WriteString(s.about + ":\n  " + strings.Join(s.commands, "\n  ") + "\n")
	}
	return b.String()
}

// formatScript sets the variables in the shell that reads it, and shows what there is
// to try.
func (g *guide) formatScript() string {
	const end = "END_OF_WHAT_TO_TRY"
	var b strings.Builder
	b.WriteString("# Commands to try while fleetloop up runs. Source this file in a shell.\n")
	for _, dir := range g.path {
		b.WriteString("PATH=" + quoteShell(dir) + ":$PATH\n")
	}
	b.WriteString("export PATH\n")
	for _, v := range g.variables {
		b.WriteString("export " + v.name + "=" + quoteShell(v.value) + "\n")
	}
	b.WriteString("cat <<'" + end + "'\n" + g.formatText() + end + "\n")
	return b.String()
}

// writeFiles puts the guide into a folder, and gives the command that reads it.
func (g *guide) writeFiles(dir string) (command string, err error) {
	file := filepath.Join(dir, guideFile)
	if err := os.WriteFile(file, []byte(g.formatScript()), 0o600); err != nil { // it may have a password
		return "", fmt.Errorf("write commands to try: %w", err)
	}
	if strings.ContainsFunc(file, isShellSpecial) {
		file = quoteShell(file)
	}
	return ". " + file, nil
}

// isShellSpecial says whether a shell may take a character for something else.
func isShellSpecial(r rune) bool {
	return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+", r)
}

// quoteShell is a text as a shell reads it as one word.
func quoteShell(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// newGuide is what there is to try with a loop.
func (l *loop) newGuide() (*guide, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find path of this executable: %w", err)
	}
	g := &guide{path: []string{filepath.Dir(self)}, sections: []section{{"clusters", []string{
		"fleetloop get clusters",
		"fleetloop describe cluster us-east-01",
		"fleetloop changes -f",
	}}}}
	g.setVariable("FLEETLOOP_SERVER", l.address)
	if l.host == nil {
		return g, nil
	}
	// The assets come behind, so that a user's own kubectl is not another here.
	g.path = append([]string{l.host.bed.Assets()}, g.path...)
	g.setVariable("KUBECONFIG", l.host.bed.AdminKubeconfig())
	for _, name := range slices.Sorted(maps.Keys(l.host.kubeconfigs)) {
		g.setVariable(strings.ToUpper(name), l.host.kubeconfigs[name])
	}
	g.setVariable("REPORTS", l.host.reports)
	g.setVariable("AUDIT", l.audit)
	as := func(name string) string { return "--kubeconfig $" + strings.ToUpper(name) }
	g.sections = append(g.sections,
		section{"sentinels", []string{"kubectl get sentinelconfigs"}},
		section{"executions: alice requests, bob approves", l.host.exampleCommands(as)},
	)
	if l.audit != "" {
		g.sections = append(g.sections, section{"audit of executions", []string{"DATABASE_URL=$AUDIT fleetloop audit list --execution scale-web"}})
	}
	g.sections = append(g.sections, section{"node faults", tryFaults("$REPORTS", "")})
	return g, nil
}
