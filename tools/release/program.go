package main

import (
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/fleetloop/fleetloop/internal/version"
)

// CertificateRoots are the certificate authorities that an image trusts.
type CertificateRoots struct {
	PEM    []byte
	Module debug.Module // module that contains them
}

// ParseCertificateRoots parses the output of tools/release/roots: a line with the module, and certificates.
func ParseCertificateRoots(text []byte) (CertificateRoots, error) {
	first, _, _ := bytes.Cut(text, []byte("\n"))
	fields := strings.Fields(string(first))
	if len(fields) != 3 || fields[0] != "#" {
		return CertificateRoots{}, fmt.Errorf("read CA certificates: first line is %q, want '# module version'", first)
	}
	if block, _ := pem.Decode(text); block == nil {
		return CertificateRoots{}, errors.New("read CA certificates: none found")
	}
	return CertificateRoots{PEM: text, Module: debug.Module{Path: fields[1], Version: fields[2]}}, nil
}

// A Program is a static Linux program in Go. Create it with OpenProgram.
type Program struct {
	Name         string    // of its file, and of the entrypoint
	Architecture string    // Go's name: amd64, arm64
	Version      string    // as recorded in the program; also the tag of its image
	Revision     string    // as recorded in the program; empty if it was built outside its repository
	Created      time.Time // time of the revision; 1970 if unknown

	data  []byte
	build *debug.BuildInfo
	roots CertificateRoots
}

// OpenProgram reads the program at path. It fails for a program that needs a library or an interpreter,
// which an image does not have, and for one that is not written in Go. If epoch is not zero, it is
// the creation time (SOURCE_DATE_EPOCH).
func OpenProgram(path string, roots CertificateRoots, epoch time.Time) (*Program, error) {
	data, err := os.ReadFile(path) //nolint:gosec // a program that we built
	if err != nil {
		return nil, err
	}
	p := &Program{Name: filepath.Base(path), data: data, roots: roots}
	if p.Architecture, err = detectStaticArchitecture(data); err != nil {
		return nil, fmt.Errorf("read program %q: %w", path, err)
	}
	if p.build, err = buildinfo.Read(bytes.NewReader(data)); err != nil {
		return nil, fmt.Errorf("read build information of %q: %w", path, err)
	}
	says := version.Of(p.build)
	p.Version, p.Created = says.Version, time.Unix(0, 0).UTC()
	for _, s := range p.build.Settings {
		switch s.Key {
		case "vcs.revision":
			p.Revision = says.Revision
		case "vcs.time":
			if p.Created, err = time.Parse(time.RFC3339, s.Value); err != nil {
				return nil, fmt.Errorf("read build information of %q: parse revision time: %w", path, err)
			}
		}
	}
	if !epoch.IsZero() {
		p.Created = epoch.UTC()
	}
	return p, nil
}

// detectStaticArchitecture returns the architecture of a statically linked program.
func detectStaticArchitecture(data []byte) (architecture string, err error) {
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return "", fmt.Errorf("not a Linux executable: %w", err)
	}
	for _, header := range f.Progs {
		if header.Type == elf.PT_INTERP || header.Type == elf.PT_DYNAMIC {
			return "", errors.New("program is dynamically linked: build it with CGO_ENABLED=0")
		}
	}
	switch f.Machine { //nolint:exhaustive // the two that images are made for
	case elf.EM_X86_64:
		return "amd64", nil
	case elf.EM_AARCH64:
		return "arm64", nil
	}
	return "", fmt.Errorf("program is built for %s, must be amd64 or arm64", f.Machine)
}
