package cli

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
)

// pluginScript prints its process, name, arguments and a variable of the environment.
const pluginScript = "#!/bin/sh\necho \"$$ ${0##*/} [$*] $FLEET\"\nexit 7\n"

// writeScripts writes scripts, and returns their directory.
func writeScripts(t *testing.T, mode os.FileMode, script string, names ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), mode); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// runProgram runs one of the linked programs with a PATH, and returns the output, the exit code and the process ID.
func runProgram(t *testing.T, program, path string, args ...string) (out string, code int, pid string) {
	t.Helper()
	var text strings.Builder
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = []string{"FLEET=eu", "PATH=" + path}, &text, &text
	_ = cmd.Run() // the code says more than the error
	if cmd.Process != nil {
		pid = strconv.Itoa(cmd.Process.Pid)
	}
	return text.String(), cmd.ProcessState.ExitCode(), pid
}

func TestPluginsRun(t *testing.T) {
	t.Parallel()
	programs := linkPrograms(t, programName, pluginFile)
	dir := writeScripts(t, 0o700, pluginScript, "fleetloop-hello", "fleetloop-hello-big_world", "fleetloop-get", "fleetloop-help", "fleetloop-up", "fleetloop-UP", "outside")
	off := writeScripts(t, 0o600, pluginScript, "fleetloop-off", "fleetloop-hello")
	cases := map[string]struct {
		reason  string
		program string
		args    []string
		want    string // in the output, %d is the process ID
		code    int
	}{
		"Arguments":     {"all of them are the plugin's, flags too", programName, []string{"hello", "--help", "a b", "--server=x"}, "%d fleetloop-hello [--help a b --server=x] eu\n", 7},
		"LongestName":   {"as kubectl does", programName, []string{"hello", "big-world", "-x"}, "%d fleetloop-hello-big_world [-x] eu\n", 7},
		"Underscore":    {"as kubectl does", programName, []string{"hello", "big_world"}, "%d fleetloop-hello-big_world [] eu\n", 7},
		"ShorterName":   {"a word that names no plugin is an argument", programName, []string{"hello", "small"}, "%d fleetloop-hello [small] eu\n", 7},
		"FlagEndsName":  {"what follows a flag may be its value", programName, []string{"hello", "-x", "big-world"}, "%d fleetloop-hello [-x big-world] eu\n", 7},
		"OfKubectl":     {"the program is a plugin itself", pluginFile, []string{"hello", "a"}, "%d fleetloop-hello [a] eu\n", 7},
		"OwnCommand":    {"a plugin overrides no command", programName, []string{"get", "--nonsense"}, "unknown flag: --nonsense", CodeUsage},
		"OwnHelp":       {"nor what cobra adds", programName, []string{"help", "gte"}, "did you mean get?", CodeUsage},
		"OwnProgram":    {"fleetloop-up must be of the same version", programName, []string{"up"}, "read version of", CodePrecondition},
		"OwnProgram2":   {"some file systems ignore the case", programName, []string{"UP"}, `unknown command "UP"`, CodeUsage},
		"NotExecutable": {"it is no plugin", programName, []string{"off"}, `unknown command "off"`, CodeUsage},
		"Mistyped":      {"suggestions stay", programName, []string{"gte", "clusters"}, "did you mean get?", CodeUsage},
		"OtherFolder":   {"a name has no path", programName, []string{"x/../outside"}, `unknown command "x/../outside"`, CodeUsage},
		"FlagBefore":    {"the flag may belong to another command", programName, []string{"--server", "http://x", "hello", "a"}, `"hello" is a plugin; its name must come before all flags`, CodeUsage},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, code, pid := runProgram(t, filepath.Join(programs, tc.program), "relative"+string(filepath.ListSeparator)+off+string(filepath.ListSeparator)+dir, tc.args...)
			want := strings.ReplaceAll(tc.want, "%d", pid) // the plugin is the same process
			if code != tc.code || !strings.Contains(out, want) || strings.Contains(out, "outside []") {
				t.Errorf("%s: exit code %d, want %d; output %q, want %q", tc.reason, code, tc.code, out, want)
			}
		})
	}
}

// TestPluginsOfCurrentDirectory covers that write access to the current directory is not enough to choose a program.
func TestPluginsOfCurrentDirectory(t *testing.T) {
	t.Parallel()
	program := filepath.Join(linkPrograms(t, programName), programName)
	dir := writeScripts(t, 0o700, pluginScript, "fleetloop-hello")
	for _, path := range []string{"", ".", ":/nonexistent", "../" + filepath.Base(dir)} {
		var text strings.Builder
		cmd := exec.CommandContext(t.Context(), program, "hello")
		cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, []string{"PATH=" + path}, &text, &text
		_ = cmd.Run()
		if code := cmd.ProcessState.ExitCode(); code != CodeUsage {
			t.Errorf("PATH %q: exit code %d, %q", path, code, text.String())
		}
	}
}

// TestPluginsAreInterrupted covers that a signal to the process is one to the plugin.
func TestPluginsAreInterrupted(t *testing.T) {
	t.Parallel()
	dir := writeScripts(t, 0o700, "#!/bin/sh\ntrap 'echo interrupted; exit 9' INT\necho ready\nwhile :; do read -r line || exit 1; done\n", "fleetloop-hello")
	cmd := exec.CommandContext(t.Context(), filepath.Join(linkPrograms(t, programName), programName), "hello")
	cmd.Env = []string{"PATH=" + dir}
	stdin, err := cmd.StdinPipe() // the plugin waits for it
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(stdout)
	if _, err := reader.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	_ = stdin.Close()
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 9 || string(rest) != "interrupted\n" {
		t.Errorf("exit code %d, output %q", code, rest)
	}
}

// TestPluginAsChild covers the systems without exec.
func TestPluginAsChild(t *testing.T) {
	t.Parallel()
	dir := writeScripts(t, 0o700, "#!/bin/sh\n[ \"$1\" = \"a b\" ] && exit 7\n", "fleetloop-hello")
	for arg, want := range map[string]int{"a b": 7, "a": 1} {
		if code, err := runPluginAsChild(filepath.Join(dir, "fleetloop-hello"), []string{arg}); code != want || err != nil {
			t.Errorf("%q: exit code %d, want %d, %v", arg, code, want, err)
		}
	}
	if _, err := runPluginAsChild(filepath.Join(dir, "none"), nil); ExitCode(err) != CodeFailed {
		t.Errorf("a program that does not start: %v", err)
	}
}

func TestPluginList(t *testing.T) {
	t.Parallel()
	program := filepath.Join(linkPrograms(t, programName), programName)
	first := writeScripts(t, 0o700, pluginScript, "fleetloop-hello", "fleetloop-a-b_c", "fleetloop-get-all", "fleetloop-up", "fleetloop-", "fleetloop--x", "kubectl-x")
	if err := os.Mkdir(filepath.Join(first, "fleetloop-folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	off, second := writeScripts(t, 0o600, pluginScript, "fleetloop-later"), writeScripts(t, 0o700, pluginScript, "fleetloop-hello", "fleetloop-later", "fleetloop-completion")
	link := filepath.Join(t.TempDir(), "link") // as /bin is one to /usr/bin
	if err := os.Symlink(second, link); err != nil {
		t.Fatal(err)
	}
	path := strings.Join([]string{first, off, "/nonexistent", second, link, first}, string(filepath.ListSeparator))
	out, code, _ := runProgram(t, program, path, "plugin", "list", "-o", "json")
	item := func(name, dir, file, warning string) string {
		text := "    {\n      \"name\": \"" + name + "\",\n      \"path\": \"" + filepath.Join(dir, file) + "\""
		if warning != "" {
			text += ",\n      \"warning\": \"" + warning + "\""
		}
		return text + "\n    }"
	}
	want := "{\n  \"items\": [\n" + strings.Join([]string{
		item("a b-c", first, "fleetloop-a-b_c", ""),
		item("get all", first, "fleetloop-get-all", "the command get hides it"),
		item("hello", first, "fleetloop-hello", ""),
		item("later", off, "fleetloop-later", "it is not executable"),
		item("completion", second, "fleetloop-completion", "the command completion hides it"),
		item("hello", second, "fleetloop-hello", filepath.Join(first, "fleetloop-hello")+" hides it"),
		item("later", second, "fleetloop-later", ""),
	}, ",\n") + "\n  ]\n}\n"
	if out != want || code != CodeOK {
		t.Errorf("exit code %d, got %s\nwant %s", code, out, want)
	}
	out, code, _ = runProgram(t, program, path, "plugin", "list")
	if strings.Count(out, "\nwarning: ") != 4 || !strings.HasPrefix(out, "NAME ") || strings.Contains(out, "fleetloop-up") || code != CodeOK {
		t.Errorf("exit code %d, got %s", code, out)
	}
	out, code, _ = runProgram(t, program, "", "plugin", "list")
	if out != "No plugins found.\n" || code != CodeOK {
		t.Errorf("exit code %d, got %s", code, out)
	}
}

func TestPluginCompletions(t *testing.T) {
	t.Parallel()
	program := filepath.Join(linkPrograms(t, programName), programName)
	dir := writeScripts(t, 0o700, "#!/bin/sh\necho \"fast=$*\"\necho :4\n", "fleetloop-hello", "fleetloop-hello-big_world", "fleetloop-get-all", "fleetloop_complete-hello-big_world")
	for line, want := range map[string]string{
		"he":                  "hello\nhelp\n:4\n",
		"hello b":             "big-world\n",
		"hello big-world --x": "fast=--x\n:4\n",
		"get al":              "clusters\n", // a command hides the plugin
	} {
		out, code, _ := runProgram(t, program, dir, append([]string{cobra.ShellCompNoDescRequestCmd}, strings.Fields(line)...)...)
		if !strings.HasPrefix(out, want) || code != CodeOK {
			t.Errorf("%s: exit code %d, got %q, want %q", line, code, out, want)
		}
	}
}
