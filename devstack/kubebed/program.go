package kubebed

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
)

// A Program is a further program that a bed runs, such as an API server behind that of
// the bed.
type Program struct {
	// Path is the path of the program. Its file name is the name of the log file, and
	// of the program in StopProgram.
	Path string

	// Args are its arguments. It runs in Dir, so that paths can be relative.
	Args []string

	// Ready returns why the program is not ready. It is called until it returns nil.
	// Nil is for programs without a readiness check.
	Ready func(ctx context.Context) error
}

// StartProgram starts a program in the bed, and returns when it is ready. From then on
// it is like the bed's programs: the bed fails if it ends, unless by StopProgram, and
// it ends with Stop or with this process. StartProgram does nothing if the program
// runs.
func (b *Bed) StartProgram(ctx context.Context, p Program) error {
	if b.findProcess(filepath.Base(p.Path)) != nil {
		return nil
	}
	if p.Ready == nil {
		p.Ready = func(context.Context) error { return nil }
	}
	return b.launchOnceAndAwaitReady(ctx, p.Path, p.Args, p.Ready)
}

// StopProgram kills a program, as a power failure would. It does nothing if the program
// does not run.
func (b *Bed) StopProgram(name string) error { return b.killProcess(name) }

// Runs reports whether a program was started and has not been stopped.
func (b *Bed) Runs(name string) bool { return b.findProcess(name) != nil }

// EtcdURL returns the URL of etcd for a program of the bed, which runs in Dir. It has
// no password; give each program a separate prefix.
func (b *Bed) EtcdURL() string { return "unix://" + etcdSocket }

// ListenAddress returns the address on which the bed listens and its programs should.
func (b *Bed) ListenAddress() string { return b.options.ListenAddress }

// WriteServerCertificate writes a certificate for a server with some names at the bed's
// address. The authority that Config trusts signs it. WriteServerCertificate returns the
// paths of the certificate and its key.
func (b *Bed) WriteServerCertificate(name string, names ...string) (certPath, keyPath string, err error) {
	p, err := b.authority.newServerPair(name, names, []net.IP{net.ParseIP(b.options.ListenAddress)})
	if err == nil {
		err = b.folder.writePair(name, b.authority, p)
	}
	if err != nil {
		return "", "", fmt.Errorf("create certificate of %s: %w", name, err)
	}
	return b.folder.Join(buildPKIPath(name + ".crt")), b.folder.Join(buildPKIPath(name + ".key")), nil
}
