package kubebed

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

const (
	// Without a network, name resolution fails at once; the timeouts are for networks
	// that drop packets.
	dialBound     = 10 * time.Second
	answerBound   = 20 * time.Second
	downloadBound = 10 * time.Minute

	mostOfAProgram  = 1 << 30 // bytes
	mostOfAChecksum = 1 << 20
)

var errDownloadBound = fmt.Errorf("not downloaded within %s", downloadBound)

// releaseDownloader are the download locations of the projects.
type releaseDownloader struct {
	kubernetes, etcd string // base URLs
	goos             string
	client           *http.Client
}

func newReleaseDownloader() releaseDownloader {
	return releaseDownloader{
		kubernetes: "https://dl.k8s.io/release",
		etcd:       "https://github.com/etcd-io/etcd/releases/download",
		goos:       runtime.GOOS,
		client: &http.Client{Transport: &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DialContext:           (&net.Dialer{Timeout: dialBound}).DialContext,
			TLSHandshakeTimeout:   dialBound,
			ResponseHeaderTimeout: answerBound,
		}},
	}
}

// downloadPrograms downloads the released programs, and verifies each against its
// published checksum.
func downloadPrograms(ctx context.Context, c *cache, from releaseDownloader, dir string) error {
	if from.goos != "linux" {
		return fmt.Errorf("no kube-apiserver release for %s", from.goos)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, downloadBound, errDownloadBound)
	defer cancel()
	defer from.client.CloseIdleConnections()
	for _, name := range ProgramNames() {
		c.log.InfoContext(ctx, "downloading", "program", name, "kubernetes", KubernetesVersion())
		var err error
		if name == "etcd" {
			err = from.fetchEtcd(ctx, dir)
		} else {
			err = from.fetchProgram(ctx, name, dir)
		}
		if err != nil {
			return errors.Join(err, ignoreIfIs(context.Cause(ctx), context.Canceled))
		}
	}
	return nil
}

// ignoreIfIs returns err, or nil if it is ignored.
func ignoreIfIs(err, ignored error) error {
	if errors.Is(err, ignored) {
		return nil
	}
	return err
}

func (r releaseDownloader) fetchProgram(ctx context.Context, name, dir string) error {
	url := strings.Join([]string{r.kubernetes, "v" + KubernetesVersion(), "bin", "linux", runtime.GOARCH, name}, "/")
	sum, err := r.fetchText(ctx, url+".sha256")
	if err != nil {
		return err
	}
	return r.fetchFileThenVerify(ctx, url, strings.TrimSpace(sum), filepath.Join(dir, name))
}

// fetchEtcd extracts etcd from its archive.
func (r releaseDownloader) fetchEtcd(ctx context.Context, dir string) (err error) {
	version := kubernetesPrograms().requiredVersion("go.etcd.io/etcd/server/v3")
	archive := fmt.Sprintf("etcd-v%s-linux-%s.tar.gz", version, runtime.GOARCH)
	sums, err := r.fetchText(ctx, r.etcd+"/v"+version+"/SHA256SUMS")
	if err != nil {
		return err
	}
	local := filepath.Join(dir, archive)
	if err := r.fetchFileThenVerify(ctx, r.etcd+"/v"+version+"/"+archive, findChecksum(sums, archive), local); err != nil {
		return err
	}
	return errors.Join(unpackProgram(local, "etcd", filepath.Join(dir, "etcd")), os.Remove(local))
}

// findChecksum returns the checksum of one file in a list of checksums.
func findChecksum(list, file string) string {
	for line := range strings.Lines(list) {
		if f := strings.Fields(line); len(f) == 2 && strings.TrimPrefix(f[1], "*") == file {
			return f[0]
		}
	}
	return ""
}

// openURL opens a URL, and returns an error unless it answers 200.
func (r releaseDownloader) openURL(ctx context.Context, url string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("get %s: %s", url, resp.Status), resp.Body.Close())
	}
	return resp.Body, nil
}

func (r releaseDownloader) fetchText(ctx context.Context, url string) (string, error) {
	body, err := r.openURL(ctx, url)
	if err != nil {
		return "", err
	}
	defer func() { _ = body.Close() }()
	var text bytes.Buffer
	_, err = io.Copy(&text, io.LimitReader(body, mostOfAChecksum))
	return text.String(), err
}

// fetchFileThenVerify downloads a URL into a program's file, and verifies its checksum.
func (r releaseDownloader) fetchFileThenVerify(ctx context.Context, url, sha256Sum, to string) (err error) {
	body, err := r.openURL(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	sum := sha256.New()
	if err := createProgramFile(to, io.TeeReader(body, sum)); err != nil {
		return fmt.Errorf("get %s: %w", url, err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != sha256Sum {
		return fmt.Errorf("get %s: checksum is %s, want %q", url, got, sha256Sum)
	}
	return nil
}

func createProgramFile(to string, content io.Reader) error {
	f, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755) //nolint:gosec // a program, in a folder of ours
	if err != nil {
		return err
	}
	n, err := io.Copy(f, io.LimitReader(content, mostOfAProgram))
	if err == nil && n == mostOfAProgram {
		err = errors.New("download too large")
	}
	return errors.Join(err, f.Close())
}

// unpackProgram extracts a program from a gzipped tar archive.
func unpackProgram(archive, name, to string) error {
	f, err := os.Open(archive) //nolint:gosec // a file of ours
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		return fmt.Errorf("unpack %q: %w", archive, err)
	}
	for entries := tar.NewReader(unzipped); ; {
		h, err := entries.Next()
		if err != nil {
			return fmt.Errorf("find %s in %q: %w", name, archive, err)
		}
		if h.Typeflag == tar.TypeReg && path.Base(h.Name) == name {
			return createProgramFile(to, entries)
		}
	}
}
