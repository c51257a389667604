package cli

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

func TestProgramArgs(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		args    []string
		program string
		want    []string
	}{
		"Plain":       {"the program itself", []string{"/usr/bin/fleetloop", "get"}, "fleetloop", []string{"get"}},
		"Plugin":      {"as kubectl starts it", []string{"/home/me/.krew/bin/kubectl-fleetloop", "get", "clusters"}, "kubectl fleetloop", []string{"get", "clusters"}},
		"Completions": {"as kubectl asks for completions", []string{"kubectl_complete-fleetloop", "get", ""}, "kubectl fleetloop", []string{cobra.ShellCompRequestCmd, "get", ""}},
		"Other":       {"a link with any name", []string{"fl"}, "fleetloop", []string{}},
		"None":        {"a program that was started oddly", nil, "fleetloop", nil},
	}
	for name, tc := range cases {
		program, args := ProgramArgs(tc.args)
		if diff := cmp.Diff(tc.want, args); program != tc.program || diff != "" {
			t.Errorf("%s: %s: %q (-want +got):\n%s", name, tc.reason, program, diff)
		}
	}
}

// TestPlugin covers that all help and advice of the plugin of kubectl have its name.
func TestPlugin(t *testing.T) {
	t.Parallel()
	newRoot := func(out *strings.Builder) (Env, *cobra.Command) {
		env := Env{Stdout: out, Stderr: out, Program: "kubectl fleetloop", Wrap: newFleet().wrapTransport}
		return env, Command(env)
	}
	bare := regexp.MustCompile(`(?m)(^|[^\w./-])fleetloop [a-z-]`)
	var commands func(cmd *cobra.Command) [][]string
	commands = func(cmd *cobra.Command) [][]string {
		all := [][]string{append(strings.Fields(cmd.CommandPath())[1:], "--help")}
		for _, sub := range cmd.Commands() {
			all = append(all, commands(sub)...)
		}
		return all
	}
	_, root := newRoot(&strings.Builder{})
	lines := append(commands(root), []string{"get", "cluster", "none"}, []string{"gte"}, []string{"whoami"}, []string{"help", "exit-codes"})
	if len(lines) < 30 {
		t.Fatalf("%d commands", len(lines))
	}
	for _, args := range lines {
		var out strings.Builder
		env, root := newRoot(&out)
		Run(t.Context(), env, root, args)
		text := strings.ReplaceAll(out.String(), "kubectl fleetloop ", "")
		if found := bare.FindString(text); found != "" || out.Len() == 0 || strings.Contains(out.String(), "kubectl kubectl") {
			t.Errorf("%q says %q in\n%s", args, found, out.String())
		}
	}
	var out strings.Builder
	env, root := newRoot(&out)
	Run(t.Context(), env, root, []string{"get", "--help"})
	for _, want := range []string{"Usage:\n  kubectl fleetloop get KIND", "  kubectl fleetloop get clusters"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func TestSuggestions(t *testing.T) {
	t.Parallel()
	for command, want := range map[string]string{
		"gte clusters":                   "did you mean get?",
		"get clutsers":                   "did you mean clusters?",
		"can-i lst clusters":             "did you mean list?",
		"get clusters --selektor a=b":    "did you mean --selector?",
		"get clusters --sever http://x":  "did you mean --server?",
		"config use-contxt x":            "did you mean use-context?",
		"config set-context x --kubecfg": "unknown flag: --kubecfg",
		"clusters pauze x":               "did you mean pause?",
		"schema st clusters":             "did you mean set or get?",
		"changes resent":                 "did you mean resend?",
		"audit gte":                      "did you mean get?",
		"help gte":                       "did you mean get?",
		"help clusters pauze":            "did you mean pause?",
	} {
		got := run{args: strings.Fields(command)}.runCLI(t, newFleet())
		if got.code != CodeUsage || !strings.Contains(got.stderr, want) {
			t.Errorf("%s: exit code %d, %q, want %q", command, got.code, got.stderr, want)
		}
	}
}

// TestExitCodesOfCommands covers that each documented exit code is that of a command.
func TestExitCodesOfCommands(t *testing.T) {
	t.Parallel()
	commands := map[int]string{
		CodeOK:           "get clusters",
		CodeFailed:       "can-i create clusters --quiet",
		CodeUsage:        "get clusters --nonsense",
		CodePrecondition: "get cluster none",
		CodePartial:      "get clusters c1 none",
		CodeTimeout:      "wait cluster c2 --for=phase=Ready --timeout=0",
		CodeDiffFailed:   "", // apitest's TestDiffOfFiles
		CodeInterrupted:  "", // TestWait
	}
	help := run{args: []string{"help", "exit-codes"}}.runCLI(t, newFleet())
	for _, c := range ExitCodes() {
		if !strings.Contains(help.stdout, fmt.Sprintf("%3d  %s\n", c.Code, c.Meaning)) {
			t.Errorf("exit code %d is not in the help:\n%s", c.Code, help.stdout)
		}
		command, ok := commands[c.Code]
		if !ok || command == "" {
			continue
		}
		if got := (run{args: strings.Fields(command)}).runCLI(t, newFleet()); got.code != c.Code {
			t.Errorf("%s: exit code %d, want %d, %s", command, got.code, c.Code, got.stderr)
		}
	}
	if len(commands) != len(ExitCodes()) {
		t.Errorf("%d exit codes are documented, want %d", len(ExitCodes()), len(commands))
	}
}

func TestDescribeSkew(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		client, server string
		want           bool
	}{
		{"1.2.0", "1.2.9", false},
		{"1.2.0", "1.3.0", false},
		{"1.3.0", "1.2.0", false},
		{"1.2.0", "1.4.0", true},
		{"1.4.0-rc.1", "1.2.0", true},
		{"1.2.0", "2.2.0", true},
		{"dev", "1.2.0", false},
		{"1.2.0", "dev", false},
		{"1.2.0", "unknown", false},
	} {
		if got := describeSkew(tc.client, tc.server); (got != "") != tc.want {
			t.Errorf("%s and %s: %q, want a warning: %t", tc.client, tc.server, got, tc.want)
		}
	}
}
