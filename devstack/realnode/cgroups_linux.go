package realnode

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// cgroupPrefix is the prefix of the cgroup names; the pid of the outer process follows.
const cgroupPrefix = "fleetloop-node-"

const cgroupRoot = "/sys/fs/cgroup"

// listCgroupFolders returns the cgroups of a name in all hierarchies, inner ones first.
func listCgroupFolders(namePattern string) []string {
	var all []string
	for _, pattern := range []string{filepath.Join(cgroupRoot, namePattern), filepath.Join(cgroupRoot, "*", namePattern)} {
		found, _ := filepath.Glob(pattern) // its only error is a bad pattern
		for _, top := range found {
			_ = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					all = append(all, path)
				}
				return nil // entries that have disappeared meanwhile do not matter
			})
		}
	}
	slices.Reverse(all)
	return all
}

// makeCgroups creates the parent cgroup of the kubelet's pods, in every hierarchy of
// the machine.
func makeCgroups(name string) error {
	hierarchies := []string{cgroupRoot} // only version 2
	if _, err := os.Stat(filepath.Join(cgroupRoot, "cgroup.controllers")); errors.Is(err, os.ErrNotExist) {
		entries, err := os.ReadDir(cgroupRoot)
		if err != nil {
			return fmt.Errorf("find cgroups of this machine: %w", err)
		}
		hierarchies = nil
		for _, e := range entries {
			if e.IsDir() { // the others are aliases
				hierarchies = append(hierarchies, filepath.Join(cgroupRoot, e.Name()))
			}
		}
	}
	for _, h := range hierarchies {
		if err := os.Mkdir(filepath.Join(h, name), 0o755); err != nil && !errors.Is(err, os.ErrExist) { //nolint:gosec // as the others there
			return fmt.Errorf("create cgroup for the node: %w", err)
		}
	}
	return nil
}

// removeOwnAndStaleCgroups removes the cgroups of nodes that have ended. A cgroup with processes
// cannot be removed.
func removeOwnAndStaleCgroups() {
	for _, dir := range listCgroupFolders(cgroupPrefix + "*") {
		rest, _ := strings.CutPrefix(dir[strings.Index(dir, cgroupPrefix):], cgroupPrefix)
		owner, _, _ := strings.Cut(rest, "/")
		if pid, err := strconv.Atoi(owner); err != nil || pid != os.Getpid() && isAlive(pid) {
			continue
		}
		_ = os.Remove(dir) // remaining ones are detected and reported
	}
}

func isAlive(pid int) bool {
	_, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
	return err == nil
}
