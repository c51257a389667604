package fleetapi_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/internal/fleetapi"
)

func TestMessagesOfOneCauseAreOneReason(t *testing.T) {
	cases := map[string]struct {
		names    []string
		messages []string
		want     string
	}{
		"Quoted":   {messages: []string{`no such version "1.99"`, `no such version "2"`, "no such version `1.98`", "no such version '7'"}, want: "no such version <value>"},
		"Numbers":  {messages: []string{"quota of 10 exceeded by 3", "quota of 512 exceeded by 1"}, want: "quota of <n> exceeded by <n>"},
		"Units":    {messages: []string{"timed out after 30s, wants 512Mi", "timed out after 1m30s, wants 2Gi"}, want: "timed out after <n>, wants <n>"},
		"IDs":      {messages: []string{"no zone 0195f3c2-7a1b-7c3d-8e4f-112233445566 found"}, want: "no zone <id> found"},
		"Digests":  {messages: []string{"image sha256:0123456789abcdef0123 is gone", "image 0123456789abcdef is gone"}, want: "image <id> is gone"},
		"IPv4":     {messages: []string{"dial tcp 10.0.0.1:443: connect: refused", "dial tcp 192.168.1.20:6443: connect: refused"}, want: "dial tcp <address>: connect: refused"},
		"IPv6":     {messages: []string{"dial tcp [2001:db8::1]:443: refused", "dial tcp [fe80:0:0:1::2]:6443: refused"}, want: "dial tcp <address>: refused"},
		"Hosts":    {messages: []string{"lookup api.eu.example.com: no such host", "lookup db.example.org: no such host"}, want: "lookup <address>: no such host"},
		"URLs":     {messages: []string{"GET https://garden.example/api/v1?x=1 failed", "GET http://10.1.1.1:80/x failed"}, want: "GET <address> failed"},
		"Times":    {messages: []string{"expired at 2026-03-01T12:00:00Z", "expired at 2026-03-01 12:00:00.123+02:00", "expired at 2026-03-01"}, want: "expired at <time>"},
		"Names":    {messages: []string{"shoot eu-west-03 exists", "shoot us-east-17 exists", "shoot garden--prod exists"}, want: "shoot <name> exists"},
		"Own name": {names: []string{"blue"}, messages: []string{"cluster blue of blueprint is gone"}, want: "cluster <name> of blueprint is gone"},
		"Paths":    {messages: []string{"open /var/lib/x: denied", "open /etc/y/z.yaml: denied"}, want: "open <path>: denied"},
		"Terms":    {messages: []string{"k8s has no ipv4 address, cannot be not-ready; it doesn't fit, won't do"}, want: "k8s has no ipv4 address, cannot be not-ready; it doesn't fit, won't do"},
		"Spaces":   {messages: []string{"a  b\n\tc", " a b c "}, want: "a b c"},
		"Code":     {messages: []string{"ERR_INFRA_QUOTA_EXCEEDED: 7 of 7 used"}, want: "ERR_INFRA_QUOTA_EXCEEDED: <n> of <n> used"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for _, m := range tc.messages {
				if got := fleetapi.NormalizeMessage(m, tc.names...); got != tc.want {
					t.Errorf("%q becomes %q, want %q", m, got, tc.want)
				}
			}
		})
	}
}

// TestAnyMessageBecomesAReason checks that the result fits the database and an index, whatever the
// message.
func TestAnyMessageBecomesAReason(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		got := fleetapi.NormalizeMessage(string(rapid.SliceOf(rapid.Byte()).Draw(rt, "bytes"))+rapid.String().Draw(rt, "text"), rapid.String().Draw(rt, "name"))
		if !utf8.ValidString(got) || utf8.RuneCountInString(got) > 300 || strings.ContainsAny(got, "\x00\n") {
			rt.Fatalf("got %q", got)
		}
	})
	if got := fleetapi.NormalizeMessage(strings.Repeat("word ", 1000)); utf8.RuneCountInString(got) != 300 || !strings.HasSuffix(got, "…") {
		t.Errorf("got %q", got)
	}
}
