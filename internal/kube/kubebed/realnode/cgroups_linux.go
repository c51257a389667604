package realnode

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// cgroupPrefix begins the names of our cgroups; the process outside follows.
const cgroupPrefix = "fleetloop-node-"

const cgroupRoot = "/sys/fs/cgroup"

// cgroupFolders are the cgroups of a name in all hierarchies, inner ones first.
func cgroupFolders(name string) []string {
	var all []string
	for _, pattern := range []string{filepath.Join(cgroupRoot, name), filepath.Join(cgroupRoot, "*", name)} {
		found, _ := filepath.Glob(pattern) // its only error is a bad pattern
		for _, top := range found {
			_ = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					all = append(all, path)
				}
				return nil // what has gone meanwhile is no matter
			})
		}
	}
	slices.Reverse(all)
	return all
}

// removeCgroups removes the cgroups of nodes that have ended. One with
// processes in it cannot be removed.
func removeCgroups() {
	for _, dir := range cgroupFolders(cgroupPrefix + "*") {
		rest, _ := strings.CutPrefix(dir[strings.Index(dir, cgroupPrefix):], cgroupPrefix)
		owner, _, _ := strings.Cut(rest, "/")
		if pid, err := strconv.Atoi(owner); err != nil || pid != os.Getpid() && alive(pid) {
			continue
		}
		_ = os.Remove(dir) // those that stay are looked for, and reported
	}
}

func alive(pid int) bool {
	_, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
	return err == nil
}
