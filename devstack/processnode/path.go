package processnode

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// lookPath finds a program in the PATH of env instead of that of this process.
func lookPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return exec.LookPath(name)
	}
	for _, e := range slices.Backward(env) {
		list, ok := strings.CutPrefix(e, "PATH=")
		if !ok {
			continue
		}
		for _, dir := range filepath.SplitList(list) {
			if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil && filepath.IsAbs(path) {
				return path, nil
			}
		}
		break
	}
	return "", fmt.Errorf("find program %q in PATH of the container: %w", name, exec.ErrNotFound)
}
