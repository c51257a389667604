package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

const (
	pluginPrefix           = "fleetloop-"
	pluginCompletionPrefix = "fleetloop_complete-"
	// productProgram is a program of the product with such a name. It is no plugin.
	productProgram = "fleetloop-up"
)

// A plugin extends the command line. It is an executable in a directory of the PATH whose name begins with
// pluginPrefix, as those of kubectl begin with "kubectl-".
//
// The rest of the name has the words of the command, joined by dashes. A dash within a word is an underscore in the
// name: "fleetloop-a-b_c" is the command "a b-c".
type plugin struct {
	// Name has the words of the command, separated by spaces.
	Name string `json:"name"`
	Path string `json:"path"`
	// Warning says why the plugin never runs. It is empty if the plugin runs.
	Warning string `json:"warning,omitempty"`
}

// findPlugin returns the executable of the plugin that the first words of args name, and the number of these words.
// The longest name wins. searchPath is the value of PATH.
func findPlugin(searchPath string, args []string) (file string, words int, ok bool) {
	return findPluginExecutable(searchPath, pluginPrefix, args)
}

// findPluginCompleter returns the executable that completes the arguments of a plugin, which need not exist.
func findPluginCompleter(searchPath, name string) (file string, ok bool) {
	words := strings.Fields(name)
	file, n, ok := findPluginExecutable(searchPath, pluginCompletionPrefix, words)
	return file, ok && n == len(words)
}

// findPluginExecutable returns the executable whose name is filePrefix and as many of the first words of args as
// possible, and the number of these words.
func findPluginExecutable(searchPath, filePrefix string, args []string) (file string, words int, ok bool) {
	dirs := listPathDirectories(searchPath)
	// The longest name wins, so leave out the last words one by one.
	parts := parsePluginNameParts(args)
	for n := len(parts); n > 0; n-- {
		name := filePrefix + strings.Join(parts[:n], "-")
		if isProductProgram(name) {
			continue
		}
		for _, dir := range dirs {
			// LookPath knows what is executable. Given a path, it does not search.
			if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
				return path, n, true
			}
		}
	}
	return "", 0, false
}

// parsePluginNameParts returns the parts of a file name for the words at the beginning of args. A flag ends the words,
// and so does what cannot be part of a file name: "x/../../bin/sh" must not leave the directory.
func parsePluginNameParts(args []string) []string {
	var parts []string
	for _, word := range args {
		if word == "" || word[0] == '-' || strings.ContainsAny(word, "/\\:\x00") {
			break
		}
		parts = append(parts, strings.ReplaceAll(word, "-", "_"))
	}
	return parts
}

// isProductProgram compares without case, because some file systems do.
func isProductProgram(name string) bool { return strings.EqualFold(name, productProgram) }

// listPlugins returns all plugins in the order of the PATH, with the reasons why some never run. isCommand reports
// whether a word is a command of ours: it hides the plugins that begin with it.
func listPlugins(searchPath string, isCommand func(word string) bool) []plugin {
	var all []plugin
	firstPath := map[string]string{} // the executable that runs, by name
	for _, dir := range listPathDirectories(searchPath) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // a PATH often has directories that do not exist
		}
		for _, entry := range entries {
			name, ok := parsePluginFileName(entry.Name())
			if !ok {
				continue
			}
			path := filepath.Join(dir, entry.Name())
			if info, err := os.Stat(path); err == nil && info.IsDir() {
				continue
			}
			found := plugin{Name: name, Path: path}
			firstWord, _, _ := strings.Cut(name, " ")
			_, notExecutable := exec.LookPath(path)
			switch {
			case notExecutable != nil:
				found.Warning = "it is not executable"
			case isCommand(firstWord):
				found.Warning = "the command " + firstWord + " hides it"
			case firstPath[name] != "":
				found.Warning = firstPath[name] + " hides it"
			default:
				firstPath[name] = path
			}
			all = append(all, found)
		}
	}
	return all
}

// parsePluginFileName returns the name of the plugin that a file has. It reports whether the file name is one of a
// plugin.
func parsePluginFileName(file string) (name string, ok bool) {
	if runtime.GOOS == "windows" {
		file = strings.TrimSuffix(file, filepath.Ext(file))
	}
	rest, ok := strings.CutPrefix(file, pluginPrefix)
	if !ok || isProductProgram(file) {
		return "", false
	}
	words := strings.Split(rest, "-")
	if slices.Contains(words, "") {
		return "", false
	}
	for i, word := range words {
		words[i] = strings.ReplaceAll(word, "_", "-")
	}
	return strings.Join(words, " "), true
}

// listPathDirectories returns the directories of a PATH, each once. Those that depend on the current directory are
// left out: whoever writes to it would choose the programs.
func listPathDirectories(searchPath string) []string {
	var dirs []string
	var targets []string // the directories without symbolic links, to find duplicates
	for _, dir := range filepath.SplitList(searchPath) {
		if !filepath.IsAbs(dir) {
			continue
		}
		target, err := filepath.EvalSymlinks(dir)
		if err != nil || slices.Contains(targets, target) {
			continue
		}
		dirs = append(dirs, dir)
		targets = append(targets, target)
	}
	return dirs
}
