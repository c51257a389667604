package auth_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
)

func TestNewRefuses(t *testing.T) {
	issuer := auth.Issuer{Issuer: "https://login.example.com", Audience: "fleet-api"}
	cases := map[string]struct {
		reason string
		cfg    auth.Config
		addr   string
		says   string
	}{
		"NoneForTheWorld":   {"everybody could do everything", auth.Config{Mode: auth.ModeNone}, "0.0.0.0:8000", `"0.0.0.0:8000"`},
		"NoneOnEvery":       {"an empty host is every interface", auth.Config{Mode: auth.ModeNone}, ":8000", "loopback"},
		"NoneOnAName":       {"a name may mean anything", auth.Config{Mode: auth.ModeNone}, "fleet.local:8000", "loopback"},
		"NoneNowhere":       {"no address is not loopback", auth.Config{Mode: auth.ModeNone}, "", "loopback"},
		"NoneWithTokens":    {"a token file that nobody reads", auth.Config{Mode: auth.ModeNone, TokenFile: "/tokens"}, "127.0.0.1:1", "does not use a token file"},
		"NoneWithIssuers":   {"issuers that nobody asks", auth.Config{Mode: auth.ModeNone, Issuers: []auth.Issuer{issuer}}, "127.0.0.1:1", "does not use a token file or issuers"},
		"BearerWithout":     {"nobody could get in", auth.Config{Mode: auth.ModeBearer}, "0.0.0.0:1", "needs a token file or issuers"},
		"UnknownMode":       {"the set is closed", auth.Config{Mode: "basic"}, "127.0.0.1:1", `"basic"`},
		"NoFile":            {"the file must be there at the start", auth.Config{Mode: auth.ModeBearer, TokenFile: "/nowhere"}, "", "/nowhere"},
		"SameIssuerTwice":   {"which of the two would count?", auth.Config{Mode: auth.ModeBearer, Issuers: []auth.Issuer{issuer, issuer}}, "", "twice"},
		"NoAudience":        {"any token of the issuer would do", auth.Config{Mode: auth.ModeBearer, Issuers: []auth.Issuer{{Issuer: issuer.Issuer}}}, "", "audience"},
		"SymmetricAlgorith": {"the key would be public", auth.Config{Mode: auth.ModeBearer, Issuers: []auth.Issuer{{Issuer: issuer.Issuer, Audience: "a", Algorithms: []string{"HS256"}}}}, "", `"HS256"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := auth.New(tc.cfg, auth.Deps{ListenAddr: tc.addr, Log: slog.New(slog.DiscardHandler)})
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%s: got %v, want an error that says %q", tc.reason, err, tc.says)
			}
		})
	}
}

func TestNone(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:8000", "[::1]:8000", "localhost:8000", "127.8.9.1:0"} {
		a, err := auth.New(auth.Config{Mode: auth.ModeNone}, auth.Deps{ListenAddr: addr})
		if err != nil {
			t.Fatalf("on %s: %v", addr, err)
		}
		got, err := a.Authenticate(t.Context(), "")
		want := auth.Principal{Subject: "anonymous", Tenant: auth.DefaultTenant, Unrestricted: true}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("on %s: %v (-want +got):\n%s", addr, err, diff)
		}
	}
}

// TestNames covers the tokens that name a subject in mode none.
func TestNames(t *testing.T) {
	a, err := auth.New(auth.Config{Mode: auth.ModeNone, Names: map[string]string{"t": "alice"}}, auth.Deps{ListenAddr: "127.0.0.1:8000"})
	if err != nil {
		t.Fatal(err)
	}
	for header, want := range map[string]string{"Bearer t": "alice", "Bearer other": "anonymous", "t": "anonymous", "": "anonymous"} {
		if got, err := a.Authenticate(t.Context(), header); err != nil || got.Subject != want || !got.Unrestricted {
			t.Errorf("header %q: %+v %v, want %s", header, got, err, want)
		}
	}
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got error %v, want %v", err, want)
	}
}
