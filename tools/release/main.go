// Command release writes container images of the binaries, and whole releases.
//
// Without -release it writes one OCI layout for each binary, without a daemon and without a registry:
//
//	go run ./tools/release -out bin/images sentinel fleet-api
//
// With -release it writes everything that a version is published with: archives for each platform, the
// images, the chart, lists of components (SBOM), checksums, the manifests of package managers and the notes:
//
//	go run ./tools/release -release 1.2.0 -out bin/release sentinel fleet-api
//
// An image contains one program and its environment: the certificate authorities, a non-root user,
// a folder for temporary files. It has no shell and no library. Its metadata (version, revision,
// time) comes from the program. The same program gives the same bytes.
//
// A layout's index contains the images for each architecture and their SBOMs. The same SBOMs are also files next to the layout, such as
// sentinel.amd64.spdx.json.
//
// With -deploy it also writes the chart and the kustomizations for the version
// of these images into a folder.
//
// With -files it instead writes the content of an image into a folder, for the
// Dockerfile, so that both ways produce the same image.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fleetloop/fleetloop/deploy"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// options holds the options from the command line and the environment.
type options struct {
	out, files    string
	deploy        string // empty means no manifests
	release       string // version, or empty to write images only
	platforms     []platform
	architectures []string
	binaries      []string
	epoch         time.Time
	log           io.Writer
}

func run(ctx context.Context, args []string, log io.Writer) error {
	o, err := parseArgs(args, log)
	if err != nil {
		return err
	}
	b := builder{log: log, epoch: o.epoch}
	if b.root, err = findModuleRoot(ctx); err != nil {
		return err
	}
	if b.roots, err = generateCertificateRoots(ctx, b.root); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "fleetloop-release-")
	if err != nil {
		return fmt.Errorf("create directory for programs: %w", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	b.dir = dir
	switch {
	case o.files != "":
		return b.buildAndWriteImageFiles(ctx, o.files, o.binaries[0])
	case o.release != "":
		return releaser{builder: b, version: o.release, out: o.out, platforms: o.platforms}.checkTagAndReplaceRelease(ctx, o.binaries)
	}
	var version string // the same for all, because they have the same source
	for _, binary := range o.binaries {
		image, err := b.buildAndWriteLayout(ctx, filepath.Join(o.out, binary), binary, o.architectures)
		if err != nil {
			return err
		}
		version = image.version
	}
	if o.deploy == "" {
		return nil
	}
	if err := deploy.WriteReleaseManifests(filepath.Join(b.root, "deploy"), o.deploy, version); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(log, "%s: chart and kustomizations of version %s\n", o.deploy, version)
	return nil
}

func parseArgs(args []string, log io.Writer) (options, error) {
	o := options{log: log}
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.SetOutput(log)
	flags.StringVar(&o.out, "out", filepath.Join("bin", "images"), "output `directory` for OCI layouts")
	flags.StringVar(&o.deploy, "deploy", "", "also write the manifests for the version of these images to this `directory`")
	flags.StringVar(&o.files, "files", "", "write the image files of one binary for this architecture to this `directory`, without a layout")
	flags.StringVar(&o.release, "release", "", "write a whole release of this `version`, such as 1.2.0, to the output directory")
	platforms := flags.String("platforms", "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64", "comma-separated platforms of a release")
	architectures := flags.String("arch", "amd64,arm64", "comma-separated architectures")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.architectures, o.binaries = strings.Split(*architectures, ","), flags.Args()
	var err error
	if o.platforms, err = parsePlatforms(*platforms); err != nil {
		return o, err
	}
	switch {
	case len(o.binaries) == 0:
		return o, errors.New("no binaries: name the binaries to release, such as 'sentinel'")
	case o.files != "" && len(o.binaries) > 1:
		return o, errors.New("-files requires exactly one binary")
	}
	if s := os.Getenv("SOURCE_DATE_EPOCH"); s != "" {
		seconds, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return o, fmt.Errorf("read SOURCE_DATE_EPOCH: %w", err)
		}
		o.epoch = time.Unix(seconds, 0)
	}
	return o, nil
}

// A builder builds programs, each once for each architecture.
type builder struct {
	root  string // of the source
	dir   string // for the programs
	roots CertificateRoots
	epoch time.Time
	log   io.Writer
}

// imageReference identifies the images of a binary.
type imageReference struct {
	version string // recorded in the programs; also the tag
	digest  string // of the index
}

// buildAndWriteLayout writes the layout of one binary's images, and their SBOMs next to it.
func (b builder) buildAndWriteLayout(ctx context.Context, dir, binary string, architectures []string) (written imageReference, err error) {
	programs := make([]*Program, 0, len(architectures))
	for _, architecture := range architectures {
		p, err := b.buildProgram(ctx, binary, architecture)
		if err != nil {
			return imageReference{}, err
		}
		programs = append(programs, p)
	}
	index, err := NewIndex(programs...)
	if err != nil {
		return imageReference{}, err
	}
	if err := WriteOCILayout(dir, programs[0].Version, index); err != nil {
		return imageReference{}, err
	}
	for _, p := range programs {
		text, err := p.SBOM()
		if err != nil {
			return imageReference{}, err
		}
		name := dir + "." + p.Architecture + ".spdx.json"
		if err := os.WriteFile(name, text, 0o644); err != nil { //nolint:gosec // for everyone to read
			return imageReference{}, fmt.Errorf("write SBOM: %w", err)
		}
	}
	digest, err := index.Digest()
	if err != nil {
		return imageReference{}, fmt.Errorf("compute index digest of %q: %w", binary, err)
	}
	_, _ = fmt.Fprintf(b.log, "%s: %s@%s\n", dir, programs[0].Version, digest)
	return imageReference{version: programs[0].Version, digest: digest.String()}, nil
}

// buildAndWriteImageFiles writes the content of a binary's image to dir.
func (b builder) buildAndWriteImageFiles(ctx context.Context, dir, binary string) error {
	p, err := b.buildProgram(ctx, binary, runtime.GOARCH)
	if err != nil {
		return err
	}
	for _, f := range p.ImageFiles() {
		name := filepath.Join(dir, f.Name)
		mode := os.FileMode(f.Mode & 0o777)
		if f.Mode&0o1000 != 0 {
			mode |= os.ModeSticky
		}
		if f.Data == nil {
			err = os.MkdirAll(name, 0o755) //nolint:gosec // as in the image
		} else {
			err = os.WriteFile(name, f.Data, mode)
		}
		if err == nil {
			err = os.Chmod(name, mode) // restore the bits that the umask removed
		}
		if err != nil {
			return fmt.Errorf("write image files of %q: %w", binary, err)
		}
	}
	return nil
}

// buildProgram builds the program of an image.
func (b builder) buildProgram(ctx context.Context, binary, architecture string) (*Program, error) {
	path, err := b.buildBinaryOnce(ctx, binary, platform{os: "linux", architecture: architecture})
	if err != nil {
		return nil, err
	}
	return OpenProgram(path, b.roots, b.epoch)
}

// buildBinaryOnce builds a binary as it is released, unless it is built already. Without the symbol table and
// debug data it is a third smaller; stack traces keep their lines. The tag removes the debug pages of gRPC,
// for which the linker would keep all exported methods.
func (b builder) buildBinaryOnce(ctx context.Context, binary string, p platform) (path string, err error) {
	path = filepath.Join(b.dir, p.os, p.architecture, binary)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	_, _ = fmt.Fprintf(b.log, "build %s for %s\n", binary, p)
	args := []string{"build", "-trimpath", "-buildvcs=auto", "-tags=grpcnotrace", "-ldflags=-s -w", "-o", path, "./cmd/" + binary}
	cmd := exec.CommandContext(ctx, "go", args...) //nolint:gosec // a binary of ours
	cmd.Dir = b.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.os, "GOARCH="+p.architecture)
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %q for %s: %w\n%s", binary, p, err, text)
	}
	return path, nil
}

// findModuleRoot returns the folder of the module of the working directory.
func findModuleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/fleetloop/fleetloop").Output()
	if err != nil {
		return "", fmt.Errorf("find source: %w", addStderr(err))
	}
	return strings.TrimSpace(string(out)), nil
}

// generateCertificateRoots runs the module that contains the trusted certificate authorities.
func generateCertificateRoots(ctx context.Context, source string) (CertificateRoots, error) {
	cmd := exec.CommandContext(ctx, "go", "run", ".")
	cmd.Dir = filepath.Join(source, "tools", "release", "roots")
	out, err := cmd.Output()
	if err != nil {
		return CertificateRoots{}, fmt.Errorf("list CA certificates: %w", addStderr(err))
	}
	return ParseCertificateRoots(out)
}

// addStderr adds the output of a command to its error.
func addStderr(err error) error {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	return err
}
