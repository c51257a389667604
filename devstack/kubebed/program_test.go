package kubebed_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
)

// script writes a program.
func script(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// said waits until a program's log file contains a text the given number of times.
func said(t *testing.T, bed *kubebed.Bed, name, want string, times int) {
	t.Helper()
	kubebedtest.Eventually(t, func(context.Context) error {
		text, err := os.ReadFile(filepath.Join(bed.Dir(), "logs", name+".log"))
		if err == nil && strings.Count(string(text), want) != times {
			err = errors.New("it said: " + string(text))
		}
		return err
	})
}

// TestProgram covers that a program runs in the bed's folder until it is stopped, which
// does not end the bed, and can be started again.
func TestProgram(t *testing.T) {
	t.Parallel()
	bed := start(t, kubebed.Options{})
	asked := 0
	p := kubebed.Program{
		Path: script(t, "server", `echo "$1 in $(pwd)"; exec sleep 1000`),
		Args: []string{"a server"},
		Ready: func(context.Context) error {
			if asked++; asked%3 != 0 {
				return errors.New("not yet")
			}
			return nil
		},
	}
	for range 2 { // the second has nothing to do
		if err := bed.StartProgram(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	if asked != 3 || !bed.Runs("server") {
		t.Errorf("it was asked %d times, want until it was ready; it runs: %t", asked, bed.Runs("server"))
	}
	said(t, bed, "server", "a server in "+bed.Dir()+"\n", 1)
	for range 2 { // likewise
		if err := bed.StopProgram("server"); err != nil {
			t.Fatal(err)
		}
	}
	if err := bed.Ready(); err != nil || bed.Runs("server") {
		t.Errorf("it was to stop, and the bed says %v; it runs: %t", err, bed.Runs("server"))
	}
	if err := bed.StartProgram(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	said(t, bed, "server", "a server in", 2)
}

// TestProgramEnds covers that the unexpected end of a program is reported: by its
// start, and later by the bed.
func TestProgramEnds(t *testing.T) {
	t.Parallel()
	bed := start(t, kubebed.Options{})
	notYet := func(context.Context) error { return errors.New("not yet") }
	err := bed.StartProgram(t.Context(), kubebed.Program{Path: script(t, "fails", "echo no luck; exit 3"), Ready: notYet})
	if err == nil || !strings.Contains(err.Error(), "fails exited: exit status 3; its output:\nno luck") {
		t.Errorf("one that does not start gives %v", err)
	}
	err = bed.StartProgram(t.Context(), kubebed.Program{Path: script(t, "listens", "echo bind: address already in use; exit 1"), Ready: notYet})
	if !errors.Is(err, kubebed.ErrPortTaken) || !strings.Contains(err.Error(), "listens") {
		t.Errorf("one whose port is taken gives %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err = bed.StartProgram(ctx, kubebed.Program{Path: script(t, "slow", "sleep 1000"), Ready: notYet})
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "not yet") {
		t.Errorf("one that is not waited for gives %v", err)
	}
	if err := bed.Ready(); err != nil {
		t.Errorf("the bed itself is well, and says %v", err)
	}
	goOn := filepath.Join(t.TempDir(), "go-on")
	p := kubebed.Program{Path: script(t, "dies", "while [ ! -e "+goOn+" ]; do sleep 0.05; done; exit 4")}
	if err := bed.StartProgram(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(goOn, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := bed.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "dies exited: exit status 4") {
		t.Errorf("Run() = %v, want who ended", err)
	}
	if err := bed.StartProgram(t.Context(), p); err == nil || !strings.Contains(err.Error(), "control plane stopped") {
		t.Errorf("in a bed that was stopped: %v", err)
	}
}

// TestServerCertificate covers that clients that trust the bed trust its server
// certificates, under their names.
func TestServerCertificate(t *testing.T) {
	t.Parallel()
	bed := kubebedtest.Bed(t)
	cert, key, err := bed.WriteServerCertificate("other", "other.default.svc")
	if err != nil {
		t.Fatal(err)
	}
	served, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{served}, MinVersion: tls.VersionTLS13}
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // a client rejects it
	server.StartTLS()
	defer server.Close()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bed.Config().CAData)
	for name, good := range map[string]bool{"": true, "other.default.svc": true, "another.default.svc": false} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: name, MinVersion: tls.VersionTLS13}}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := (&http.Client{Transport: transport}).Do(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		if good != (err == nil) {
			t.Errorf("as %q: %v, want it trusted: %t", name, err, good)
		}
		transport.CloseIdleConnections()
	}
}
