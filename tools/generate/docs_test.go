package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fleetloop/fleetloop/internal/app/adapterapp"
	"github.com/fleetloop/fleetloop/internal/app/apiapp"
	"github.com/fleetloop/fleetloop/internal/app/clusterworkerapp"
	"github.com/fleetloop/fleetloop/internal/app/consoleapp"
	"github.com/fleetloop/fleetloop/internal/app/executionapp"
	"github.com/fleetloop/fleetloop/internal/app/nodefaultapp"
	"github.com/fleetloop/fleetloop/internal/app/sentinelapp"
)

// TestDocsCommands checks that each of our commands in a code block of the
// README, the tutorials, the how-to guides and the runbooks exists, with its
// flags.
func TestDocsCommands(t *testing.T) {
	programs := map[string]*cobra.Command{
		"fleetloop":             newFleetloopCommand(),
		"fleet-api":             apiapp.NewCommand(nil, nil, noEnv),
		"sentinel":              sentinelapp.NewCommand(nil, nil, noEnv),
		"cluster-worker":        clusterworkerapp.NewCommand(nil, nil, noEnv),
		"execution-controller":  executionapp.NewCommand(nil, nil, noEnv),
		"node-fault-controller": nodefaultapp.NewCommand(nil, nil, noEnv),
		"adapter-runner":        adapterapp.NewCommand(nil, nil, noEnv),
		"console":               consoleapp.NewCommand(nil, nil, noEnv),
	}
	for _, program := range programs {
		program.InitDefaultHelpCmd()
		program.InitDefaultCompletionCmd()
	}
	// A command begins a line of a code block or a span of code, after a prompt
	// and environment variables.
	command := regexp.MustCompile("(?m)(?:^    |`)(?:\\$ )?(?:[A-Z_]+=\\S+ )*(fleetloop|fleet-api|sentinel|cluster-worker|execution-controller|node-fault-controller|adapter-runner) ([^`\n]*)")
	checked := 0
	for file, text := range documents(t) {
		for _, m := range command.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[2], "-->") {
				continue // an arrow of a diagram
			}
			checked++
			if problem := checkCommand(programs[m[1]], m[2]); problem != "" {
				t.Errorf("%s: %s %s: %s", file, m[1], m[2], problem)
			}
		}
	}
	if checked < 100 {
		t.Errorf("only %d commands were found", checked)
	}
}

// TestDocsVariables checks that each variable in a command of a document is set
// by another command of the same document, or by try.sh of "fleetloop up --demo".
func TestDocsVariables(t *testing.T) {
	ofDemo := []string{"FLEETLOOP_SERVER", "KUBECONFIG", "ALICE", "BOB", "REPORTS", "AUDIT", "PATH", "HOME"}
	used := regexp.MustCompile(`(?m)^    .*?\$\{?([A-Za-z_]+)`)
	for file, text := range documents(t) {
		for _, m := range used.FindAllStringSubmatch(text, -1) {
			set := regexp.MustCompile(`(?m)(^|[ ;(\x60$])` + m[1] + `=|\bfor ` + m[1] + ` in\b|\x60\$` + m[1] + `\x60 is`)
			if !slices.Contains(ofDemo, m[1]) && !set.MatchString(text) {
				t.Errorf("%s uses $%s, which nothing in it sets", file, m[1])
			}
		}
	}
}

// documents returns the README, the tutorials, the how-to guides and the
// runbooks by their paths. Lines of shell blocks are indented by four spaces.
func documents(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, pattern := range []string{"README.md", "docs/tutorial/*.md", "docs/how-to/*.md", "docs/runbooks/*.md"} {
		files, err := filepath.Glob(filepath.Join("..", "..", pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("nothing matches %s: %v", pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			texts[file] = indentShellBlocks(string(text))
		}
	}
	return texts
}

// indentShellBlocks writes fenced shell blocks as indented blocks, which the
// patterns of the tests match, and removes other fenced blocks.
func indentShellBlocks(text string) string {
	var b strings.Builder
	var language string // of the block that the line is in
	var fence string
	for line := range strings.Lines(text) {
		trimmed := strings.TrimLeft(line, " ")
		switch {
		case fence == "" && strings.HasPrefix(trimmed, "```"):
			language = strings.TrimSpace(strings.TrimLeft(trimmed, "`"))
			fence = trimmed[:len(trimmed)-len(strings.TrimLeft(trimmed, "`"))]
		case fence != "" && strings.TrimSpace(line) == fence:
			fence = ""
		case fence == "":
			b.WriteString(line)
			continue
		case language == "sh":
			b.WriteString("    " + trimmed)
			continue
		}
		b.WriteString("\n")
	}
	return b.String()
}

// checkCommand returns which part of a command line does not exist, or "".
func checkCommand(program *cobra.Command, line string) string {
	line, _, _ = strings.Cut(line, " #")
	line, _, _ = strings.Cut(line, " | ")
	words := strings.Fields(line)
	cmd := program
	for _, word := range words {
		sub := find(cmd, word)
		if sub == nil {
			if cmd.HasAvailableSubCommands() && regexp.MustCompile(`^[a-z][a-z-]*$`).MatchString(word) && cmd.Run == nil && cmd.RunE == nil {
				return "there is no command " + word
			}
			break
		}
		cmd = sub
	}
	for _, word := range words {
		name, isFlag := strings.CutPrefix(word, "--")
		name, _, _ = strings.Cut(name, "=")
		name = strings.TrimRight(name, ".,;:)…")
		if isFlag && name != "" && name != "help" && flagOf(cmd, name) == nil {
			return "there is no flag --" + name
		}
	}
	return ""
}

func find(cmd *cobra.Command, name string) *cobra.Command {
	for _, sub := range cmd.Commands() {
		if sub.Name() == name || sub.HasAlias(name) {
			return sub
		}
	}
	return nil
}

func flagOf(cmd *cobra.Command, name string) *pflag.Flag {
	for _, flags := range []*pflag.FlagSet{cmd.Flags(), cmd.PersistentFlags(), cmd.InheritedFlags()} {
		if f := flags.Lookup(name); f != nil {
			return f
		}
	}
	return nil
}
