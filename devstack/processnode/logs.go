package processnode

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// A logServer serves logs to the API server on a loopback port. It does not
// authenticate clients: every user of this machine can read the logs.
type logServer struct {
	server   *http.Server
	listener net.Listener
	done     chan struct{}

	mu   sync.Mutex
	dirs map[string]string // of pods, by namespace and name
	open map[string]bool   // files being written
}

const followEvery = 100 * time.Millisecond

func serveLogs(ctx context.Context) (*logServer, error) {
	certificate, err := newSelfSignedCertificate()
	if err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		return nil, err
	}
	l := &logServer{listener: listener, done: make(chan struct{}), dirs: map[string]string{}, open: map[string]bool{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", l.serveLog)
	l.server = &http.Server{
		Handler: mux, ReadHeaderTimeout: 10 * time.Second,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
	}
	go func() {
		defer close(l.done)
		_ = l.server.ServeTLS(listener, "", "") // returns when the server is closed
	}()
	return l, nil
}

func newSelfSignedCertificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(1, 0, 0),
		IPAddresses: []net.IP{net.ParseIP(address)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

func (l *logServer) closeServer() error {
	err := l.server.Close()
	<-l.done
	return err
}

func (l *logServer) listenPort() int32 {
	a, ok := l.listener.Addr().(*net.TCPAddr)
	if !ok {
		return 0
	}
	return int32(a.Port) //nolint:gosec // a port
}

func (l *logServer) addPod(pod *corev1.Pod, dir string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dirs[pod.Namespace+"/"+pod.Name] = dir
}

// removePod removes a pod, unless another one of its name has been added.
func (l *logServer) removePod(pod *corev1.Pod, dir string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if key := pod.Namespace + "/" + pod.Name; l.dirs[key] == dir {
		delete(l.dirs, key)
	}
}

func (l *logServer) serveLog(rw http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	dir, ok := l.dirs[r.PathValue("namespace")+"/"+r.PathValue("pod")]
	l.mu.Unlock()
	name := r.PathValue("container")
	if !ok || !filepath.IsLocal(name) || filepath.Base(name) != name {
		http.Error(rw, "pod not found on this node", http.StatusNotFound)
		return
	}
	life, err := findNewestLogNumber(dir, name)
	if r.FormValue("previous") == "true" {
		life--
	}
	if err != nil || life < 0 {
		http.Error(rw, fmt.Sprintf("log of container %q not found", name), http.StatusNotFound)
		return
	}
	f, err := os.Open(logFile(dir, name, life))
	if err != nil {
		http.Error(rw, "log deleted", http.StatusNotFound)
		return
	}
	defer func() { _ = f.Close() }()
	if err := l.streamRequestedLog(rw, r, f); err != nil && r.Context().Err() == nil {
		http.Error(rw, "read log: "+err.Error(), http.StatusInternalServerError)
	}
}

// findNewestLogNumber returns the number of a container's newest log.
func findNewestLogNumber(dir, name string) (int32, error) {
	files, err := filepath.Glob(filepath.Join(dir, "logs", name, "*.log"))
	if err != nil || len(files) == 0 {
		return 0, errors.Join(err, os.ErrNotExist)
	}
	latest := int32(-1)
	for _, f := range files {
		n, err := strconv.ParseInt(filepath.Base(f[:len(f)-len(".log")]), 10, 32)
		if err != nil {
			return 0, err
		}
		latest = max(latest, int32(n))
	}
	return latest, nil
}

// markLogOpen records that a container writes a log. markLogClosed records the end.
func (l *logServer) markLogOpen(file string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[file] = true
}

func (l *logServer) markLogClosed(file string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, file)
}

func (l *logServer) isBeingWritten(file string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open[file]
}

// streamRequestedLog sends a log according to the parameters of the request.
func (l *logServer) streamRequestedLog(rw http.ResponseWriter, r *http.Request, f *os.File) error {
	if lines, err := strconv.Atoi(r.FormValue("tailLines")); err == nil {
		if err := seekLastLines(f, lines); err != nil {
			return err
		}
	}
	rw.Header().Set("Content-Type", "text/plain")
	left := int64(math.MaxInt64)
	if most, err := strconv.ParseInt(r.FormValue("limitBytes"), 10, 64); err == nil {
		left = most
	}
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		more := l.isBeingWritten(f.Name()) && r.FormValue("follow") == "true" // read before the last bytes are copied
		n, err := io.CopyN(rw, f, left)
		if left -= n; err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if !more || left == 0 {
			return nil
		}
		if err := http.NewResponseController(rw).Flush(); err != nil {
			return err
		}
		select {
		case <-r.Context().Done():
			return nil
		case <-tick.C:
		}
	}
}

// seekLastLines seeks to the start of the last lines of a file.
func seekLastLines(f *os.File, lines int) error {
	text, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	at := len(text)
	for at > 0 && lines > 0 {
		at = bytes.LastIndexByte(text[:at-1], '\n') + 1
		lines--
	}
	_, err = f.Seek(int64(at), io.SeekStart)
	return err
}
