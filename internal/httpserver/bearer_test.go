package httpserver_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/fleetloop/fleetloop/internal/httpserver"
)

// write replaces the file as a Secret's volume does: it renames the new file to the old name.
func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// read parses lines with a token, or "#" and a hash, and a subject. The owner is the length of the
// subject.
func read(path string) ([]httpserver.BearerToken[int], error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var tokens []httpserver.BearerToken[int]
	for line := range strings.Lines(string(data)) {
		token, subject, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if !ok {
			return nil, fmt.Errorf("%s: a line without a subject", path)
		}
		t := httpserver.BearerToken[int]{Plain: token, Subject: subject, Owner: len(subject)}
		if hash, is := strings.CutPrefix(token, "#"); is {
			t.Plain, t.SHA256 = "", hash
		}
		if subject == "nobody" {
			t.Wrong = errors.New("is nobody")
		}
		tokens = append(tokens, t)
	}
	return tokens, nil
}

func TestFileIsFollowed(t *testing.T) {
	var logs bytes.Buffer
	path := filepath.Join(t.TempDir(), "tokens")
	write(t, path, fmt.Sprintf("first-token al\n#%x bob\n", httpserver.HashToken("second-token")))
	f, err := httpserver.OpenTokenFile(path, read, slog.New(slog.NewTextHandler(&logs, nil)))
	if err != nil {
		t.Fatal(err)
	}
	steps := []struct {
		reason string
		do     func()
		want   map[string]int // 0 is nobody
		logged string         // once
	}{
		{"what it has at first", func() {}, map[string]int{"first-token": 2, "second-token": 3, "first-toke": 0, "first-token2": 0, "": 0}, ""},
		{"another of the same size is another", func() { write(t, path, "other-token al\n") }, map[string]int{"other-token": 2, "first-token": 0, "second-token": 0}, "token file reloaded"},
		{"a broken one changes nothing", func() { write(t, path, "third-token") }, map[string]int{"other-token": 2, "third-token": 0}, "unreadable"},
		{"nor one with a token that cannot be taken", func() { write(t, path, "third-token nobody\n") }, map[string]int{"other-token": 2, "third-token": 0}, "is nobody"},
		{"nor one that is gone", func() {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}, map[string]int{"other-token": 2}, "token file deleted"},
		{"an empty one locks out", func() { write(t, path, "") }, map[string]int{"other-token": 0}, "tokens=0"},
	}
	for _, s := range steps {
		logs.Reset()
		s.do()
		for range 2 {
			for token, want := range s.want {
				if got, ok := f.Lookup(t.Context(), httpserver.HashToken(token)); got != want || ok != (want != 0) {
					t.Errorf("%s: token %q: got %d, %v, want %d", s.reason, token, got, ok, want)
				}
			}
		}
		if text := logs.String(); s.logged != "" && strings.Count(text, s.logged) != 1 || s.logged == "" && text != "" || strings.Contains(text, "-token") {
			t.Errorf("%s: logged %q, want %q once, and no token", s.reason, text, s.logged)
		}
	}
}

// TestReadWhileReplaced reads concurrently while the file changes: each reader sees one complete
// version.
func TestReadWhileReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	write(t, path, "a-token a\n")
	f, err := httpserver.OpenTokenFile(path, read, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var looking sync.WaitGroup
	for range 8 {
		looking.Go(func() {
			for range 200 {
				if got, ok := f.Lookup(t.Context(), httpserver.HashToken("a-token")); !ok || got != 1 && got != 2 {
					t.Errorf("got %d, %v", got, ok)
				}
			}
		})
	}
	for i := range 50 {
		write(t, path, []string{"a-token a\n", "b-token b\na-token aa\n"}[i%2])
	}
	looking.Wait()
}

func TestOpenRefuses(t *testing.T) {
	hash := fmt.Sprintf("%x", httpserver.HashToken("s3cret"))
	cases := map[string]struct {
		reason string
		tokens []httpserver.BearerToken[int]
		says   string
	}{
		"BothForms":   {"which of the two counts?", []httpserver.BearerToken[int]{{Plain: "s3cret", SHA256: hash, Subject: "a"}}, `tokens[0] (subject "a"): must have exactly one of token and sha256`},
		"Neither":     {"anybody would have it", []httpserver.BearerToken[int]{{Subject: "a"}}, "must have exactly one of token and sha256"},
		"ShortHash":   {"it is the hash of nothing", []httpserver.BearerToken[int]{{SHA256: "abcd", Subject: "a"}}, "64 hexadecimal"},
		"NoHash":      {"nor is this", []httpserver.BearerToken[int]{{SHA256: strings.Repeat("xy", 32), Subject: "a"}}, "64 hexadecimal"},
		"NoSubject":   {"whose is it?", []httpserver.BearerToken[int]{{Plain: "s3cret"}}, "subject must be"},
		"LongSubject": {"no database would take it", []httpserver.BearerToken[int]{{Plain: "s3cret", Subject: strings.Repeat("a", 254)}}, "subject must be"},
		"BadSubject":  {"it would break logs", []httpserver.BearerToken[int]{{Plain: "s3cret", Subject: "a\nb"}}, "printable"},
		"Wrong":       {"its reader says so", []httpserver.BearerToken[int]{{Plain: "s3cret", Subject: "a", Wrong: errors.New("is no tenant's")}}, "is no tenant's"},
		"SameTwice":   {"whose is it?", []httpserver.BearerToken[int]{{Plain: "s3cret", Subject: "a"}, {SHA256: hash, Subject: "b"}}, `tokens[1] (subject "b"): the token is listed twice`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "tokens")
			write(t, path, "")
			_, err := httpserver.OpenTokenFile(path, func(string) ([]httpserver.BearerToken[int], error) { return tc.tokens, nil }, slog.New(slog.DiscardHandler))
			if err == nil || !strings.Contains(err.Error(), tc.says) || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%s: got %v, want an error that says %q and no token", tc.reason, err, tc.says)
			}
		})
	}
	if _, err := httpserver.OpenTokenFile("/nowhere", read, slog.New(slog.DiscardHandler)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a file: got %v", err)
	}
}

func TestFromHeader(t *testing.T) {
	for header, want := range map[string]string{
		"Bearer a-token": "a-token", "bearer a-token": "a-token", "BEARER  a-token ": "a-token", "Bearer a b": "a b",
		"": "", "Bearer": "", "Bearer ": "", "Basic a-token": "", "a-token": "", "Bearera-token": "",
	} {
		if got := httpserver.TokenFromHeader(header); got != want {
			t.Errorf("header %q: got %q, want %q", header, got, want)
		}
	}
}

func TestLoopback(t *testing.T) {
	for addr, want := range map[string]bool{
		"127.0.0.1:8000": true, "[::1]:8000": true, "localhost:8000": true, "127.8.9.1:0": true,
		"0.0.0.0:8000": false, ":8000": false, "fleet.local:8000": false, "": false, "127.0.0.1": false, "[::]:80": false,
	} {
		if got := httpserver.IsLoopback(addr); got != want {
			t.Errorf("%q: got %v, want %v", addr, got, want)
		}
	}
}

func TestLoopbackHost(t *testing.T) {
	for host, want := range map[string]bool{
		"127.0.0.1": true, "127.0.0.1:8000": true, "[::1]": true, "[::1]:8000": true, "localhost": true, "LocalHost:8000": true,
		"": false, "evil.example": false, "localhost.evil.example:80": false, "0.0.0.0:8000": false, "127.0.0.1.evil.example": false,
	} {
		if got := httpserver.IsLoopbackHost(host); got != want {
			t.Errorf("%q: got %v, want %v", host, got, want)
		}
	}
}
