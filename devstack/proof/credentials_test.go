package main

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestServerTokens holds that during a rotation the fleet API accepts both tokens of each subject, and
// afterwards the new one.
func TestServerTokens(t *testing.T) {
	t.Parallel()
	dir, before, after := t.TempDir(), newTokens(), newTokens()
	want := func(accepted bool, tokens map[string]string) {
		t.Helper()
		text, err := os.ReadFile(tokensPath(dir))
		if err != nil {
			t.Fatal(err)
		}
		for subject, token := range tokens {
			line := fmt.Sprintf("sha256: %x, subject: %s, %s}", sha256.Sum256([]byte(token)), subject, tokenRights()[subject])
			if strings.Contains(string(text), line) != accepted {
				t.Errorf("token of %s accepted: %t, want %t", subject, !accepted, accepted)
			}
		}
	}
	if err := writeServerTokenFile(dir, before, after); err != nil {
		t.Fatal(err)
	}
	want(true, before)
	want(true, after)
	if err := writeServerTokenFile(dir, after); err != nil {
		t.Fatal(err)
	}
	want(false, before)
	want(true, after)
}

// TestCertificates holds that clients of the authority accept each certificate for the address of the
// servers, and that each is another one.
func TestCertificates(t *testing.T) {
	t.Parallel()
	a, err := newAuthority(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(caPath(a.dir))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		t.Fatal("the file of the authority has no certificate")
	}
	var serials []string
	for range 2 {
		if err := a.issueServerCertificate(); err != nil {
			t.Fatal(err)
		}
		pair, err := tls.LoadX509KeyPair(certificatePaths(a.dir))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "127.0.0.1"}); err != nil {
			t.Error(err)
		}
		serials = append(serials, pair.Leaf.SerialNumber.String())
	}
	if serials[0] == serials[1] {
		t.Errorf("both certificates have the serial number %s", serials[0])
	}
}
