package kubebed

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
)

// A Program is one that a bed runs beside its own, such as an API server that
// stands behind that of the bed.
type Program struct {
	// Path is the program. The name of its file is that of its log file, and
	// what StopProgram knows it by.
	Path string

	// Args are its arguments. It runs in Dir, so that paths can be relative.
	Args []string

	// Ready says why the program is not ready. It is asked until it gives nil.
	// Nil is for programs that nobody can ask.
	Ready func(ctx context.Context) error
}

// StartProgram starts a program in the bed, and returns when it is ready. From
// then on it is as the bed's own: its end is that of the bed, unless StopProgram
// brought it about, Stop ends it, and so does the end of this process. It does
// nothing when the program runs.
func (b *Bed) StartProgram(ctx context.Context, p Program) error {
	if b.findProcess(filepath.Base(p.Path)) != nil {
		return nil
	}
	if p.Ready == nil {
		p.Ready = func(context.Context) error { return nil }
	}
	return b.launchUntilReady(ctx, p.Path, p.Args, p.Ready)
}

// StopProgram ends a program at once, as a power failure would. It does nothing
// when the program does not run.
func (b *Bed) StopProgram(name string) error { return b.haltProcess(name) }

// Runs is whether a program was started and has not been stopped.
func (b *Bed) Runs(name string) bool { return b.findProcess(name) != nil }

// EtcdURL is where a program of the bed, which runs in Dir, reaches etcd. It has
// no password: give each program a prefix of its own.
func (b *Bed) EtcdURL() string { return "unix://" + etcdSocket }

// ListenAddress is where the bed listens, and where its programs should.
func (b *Bed) ListenAddress() string { return b.options.ListenAddress }

// ServerCertificate writes a certificate for a server of some names at the bed's
// address, signed by the authority that Config trusts, and gives its file and
// that of its key.
func (b *Bed) ServerCertificate(name string, names ...string) (cert, key string, err error) {
	p, err := b.authority.newServerPair(name, names, []net.IP{net.ParseIP(b.options.ListenAddress)})
	if err == nil {
		err = b.folder.writePair(name, b.authority, p)
	}
	if err != nil {
		return "", "", fmt.Errorf("create certificate of %s: %w", name, err)
	}
	return b.folder.Join(pkiPath(name + ".crt")), b.folder.Join(pkiPath(name + ".key")), nil
}
