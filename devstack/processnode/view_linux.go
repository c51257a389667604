package processnode

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// A view is the file tree that a process sees. It starts as a mirror of the machine's
// tree, entry by entry, so that names can be added that the machine does not have and
// must not get.
type sandboxRoot struct {
	root string
	own  []string // folders in the view in which names can be created
}

// buildSandboxRoot builds the view under root, in this process's mount namespace.
func buildSandboxRoot(root string, mounts []SandboxMount) error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	v := &sandboxRoot{root: root}
	if err := v.mirrorOnTmpfs("/", "/"); err != nil {
		return err
	}
	// This /proc shows the PID namespace. Where it is refused, the machine's /proc
	// answers all queries of a process about itself.
	err := syscall.Mount("proc", filepath.Join(root, "proc"), "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, "")
	if err != nil && !errors.Is(err, syscall.EPERM) {
		return fmt.Errorf("mount /proc: %w", err)
	}
	for _, m := range mounts {
		if err := v.addMount(m); err != nil {
			return fmt.Errorf("mount %q at %q: %w", m.Source, m.Target, err)
		}
	}
	return nil
}

// mirrorOnTmpfs mounts a writable folder over the folder at seen, with every entry of
// source in it.
func (v *sandboxRoot) mirrorOnTmpfs(source, pathInRoot string) error {
	// The descriptor leads below the new mount even if both are one folder.
	dir, err := os.Open(source) //nolint:gosec // a folder of the machine
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return err
	}
	target := filepath.Join(v.root, pathInRoot)
	if err := syscall.Mount("tmpfs", target, "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("mount directory over %q: %w", pathInRoot, err)
	}
	below := fmt.Sprintf("/proc/self/fd/%d", dir.Fd())
	for _, e := range entries {
		err := bindOrLinkEntry(filepath.Join(below, e.Name()), filepath.Join(target, e.Name()), e.Type())
		if err != nil && !errors.Is(err, os.ErrNotExist) { // it may just have been removed
			return fmt.Errorf("bind mount %q: %w", filepath.Join(pathInRoot, e.Name()), err)
		}
	}
	v.own = append(v.own, pathInRoot)
	return nil
}

func bindOrLinkEntry(source, target string, kind os.FileMode) error {
	if kind&os.ModeSymlink != 0 {
		to, err := os.Readlink(source)
		if err != nil {
			return err
		}
		return os.Symlink(to, target)
	}
	return bindMount(source, target, kind.IsDir())
}

// bindMount creates target and mounts source there, with its submounts.
func bindMount(source, target string, folder bool) error {
	if folder {
		if err := os.Mkdir(target, 0o755); err != nil && !errors.Is(err, os.ErrExist) { //nolint:gosec // covered by the mount
			return err
		}
	} else {
		f, err := os.OpenFile(target, os.O_CREATE|os.O_RDONLY, 0o644) //nolint:gosec // covered by the mount
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return syscall.Mount(source, target, "", syscall.MS_BIND|syscall.MS_REC, "")
}

func (v *sandboxRoot) addMount(m SandboxMount) error {
	info, err := os.Stat(m.Source)
	if err != nil {
		return err
	}
	seen, err := v.ensurePath(filepath.Clean(m.Target), info.IsDir())
	if err != nil {
		return err
	}
	target := filepath.Join(v.root, seen)
	if err := syscall.Mount(m.Source, target, "", syscall.MS_BIND|syscall.MS_REC, ""); err != nil {
		return err
	}
	if info.IsDir() && !m.ReadOnly {
		v.own = append(v.own, seen) // a mount inside of a mount creates its folder there
	}
	if m.ReadOnly {
		return remountReadOnly(target)
	}
	return nil
}

// remountReadOnly keeps the flags that a namespace without rights over the file system
// may not clear.
func remountReadOnly(target string) error {
	var st syscall.Statfs_t
	if err := syscall.Statfs(target, &st); err != nil {
		return err
	}
	const kept = syscall.MS_NOSUID | syscall.MS_NODEV | syscall.MS_NOEXEC | syscall.MS_NOATIME | syscall.MS_NODIRATIME
	flags := uintptr(st.Flags)&kept | syscall.MS_BIND | syscall.MS_REMOUNT | syscall.MS_RDONLY //nolint:gosec // flags are no number
	return syscall.Mount("", target, "", flags, "")
}

// ensurePath creates path in the view, as a folder or a file, and returns it with its
// links resolved.
func (v *sandboxRoot) ensurePath(path string, folder bool) (resolved string, err error) {
	const mostLinks = 40
	links := 0
	seen := "/"
	rest := strings.Split(strings.Trim(path, "/"), "/")
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		next := filepath.Join(seen, name) // .. at the root stays there
		info, err := os.Lstat(filepath.Join(v.root, next))
		switch {
		case errors.Is(err, os.ErrNotExist):
			if err := v.makeParentWritableAndCreate(next, folder || len(rest) > 0); err != nil {
				return "", err
			}
			seen = next
		case err != nil:
			return "", err
		case info.Mode()&os.ModeSymlink == 0:
			seen = next
		default:
			if links++; links > mostLinks {
				return "", fmt.Errorf("resolve %q: too many links", path)
			}
			to, err := os.Readlink(filepath.Join(v.root, next))
			if err != nil {
				return "", err
			}
			if filepath.IsAbs(to) {
				seen = "/"
			}
			rest = append(strings.Split(strings.Trim(to, "/"), "/"), rest...)
		}
	}
	return seen, nil
}

// makeParentWritableAndCreate creates a name in the view, in an owned folder.
func (v *sandboxRoot) makeParentWritableAndCreate(path string, folder bool) error {
	parent := filepath.Dir(path)
	if !v.canCreateIn(parent) {
		if err := v.mirrorOnTmpfs(filepath.Join(v.root, parent), parent); err != nil {
			return err
		}
	}
	target := filepath.Join(v.root, path)
	if folder {
		return os.Mkdir(target, 0o755) //nolint:gosec // in the view of one process
	}
	f, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644) //nolint:gosec // in the view of one process
	if err != nil {
		return err
	}
	return f.Close()
}

// canCreateIn reports whether names can be created in a folder: the nearest mount above it
// belongs to the view. A name that was created in an owned folder is owned as well.
func (v *sandboxRoot) canCreateIn(folder string) bool {
	for _, o := range v.own {
		if folder == o {
			return true
		}
		if rest, ok := strings.CutPrefix(folder, strings.TrimSuffix(o, "/")+"/"); ok && v.isSameDevice(o, rest) {
			return true
		}
	}
	return false
}

// isSameDevice reports whether nothing is mounted between an owned folder and one below
// it.
func (v *sandboxRoot) isSameDevice(own, rest string) bool {
	var a, b syscall.Stat_t
	if syscall.Stat(filepath.Join(v.root, own), &a) != nil || syscall.Stat(filepath.Join(v.root, own, rest), &b) != nil {
		return false
	}
	return a.Dev == b.Dev
}
