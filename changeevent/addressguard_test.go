package changeevent

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// refused returns addresses that only a host and its neighbors can reach, by reason.
func refused() map[string]string {
	return map[string]string{
		"127.0.0.1": "loopback", "127.0.0.2": "loopback", "127.255.255.254": "loopback", "::1": "loopback",
		"0.0.0.0": "unspecified", "0.1.2.3": "unspecified", "::": "unspecified",
		"10.0.0.1": "private", "10.255.255.255": "private", "172.16.0.1": "private", "172.31.255.254": "private",
		"192.168.0.1": "private", "192.168.255.255": "private", "fc00::1": "private", "fd12:3456:789a::1": "private", "fdff::1": "private",
		"169.254.0.1": "link-local", "169.254.255.254": "link-local", "fe80::1": "link-local", "fe80::1%lo": "link-local", "febf::1": "link-local",
		"fec0::1": "site-local", "feff::1": "site-local",
		"169.254.169.254": "metadata", "169.254.170.2": "metadata", "fd00:ec2::254": "metadata", "100.100.100.200": "metadata",
		"168.63.129.16": "metadata", "192.0.0.192": "metadata", "::ffff:169.254.169.254": "metadata", "64:ff9b::a9fe:a9fe": "metadata",
		"100.64.0.1": "carrier", "100.127.255.254": "carrier",
		"192.0.0.1": "protocol assignment", "192.0.0.170": "protocol assignment", "2001:2::1": "protocol assignment", "2001:10::1": "protocol assignment", "5f00::1": "protocol assignment",
		"192.0.2.1": "documentation", "198.51.100.7": "documentation", "203.0.113.9": "documentation", "2001:db8::1": "documentation", "3fff::1": "documentation",
		"198.18.0.1": "benchmarking", "198.19.255.254": "benchmarking",
		"224.0.0.1": "multicast", "239.255.255.250": "multicast", "ff02::1": "multicast", "ff0e::1": "multicast",
		"240.0.0.1": "reserved", "255.255.255.255": "reserved",
		"100::1": "discard-only", "100:0:0:1::1": "discard-only",
		"::ffff:127.0.0.1": "loopback", "::ffff:10.0.0.1": "private", "::ffff:7f00:1": "loopback", "::ffff:0.0.0.0": "unspecified",
		"::127.0.0.1": "IPv4-compatible", "::10.0.0.1": "IPv4-compatible", "::ffff:0:10.0.0.1": "IPv4-translated",
		"64:ff9b::7f00:1": "NAT64", "64:ff9b::10.0.0.1": "NAT64", "64:ff9b::192.168.1.1": "NAT64", "64:ff9b:1::10.0.0.1": "local-use NAT64",
		"2002:7f00:1::": "6to4", "2002:a00:1::1": "6to4", "2002:c0a8:101::1": "6to4", "192.88.99.1": "6to4",
		"2001:0:4136:e378:8000:63bf:3fff:fdd2": "protocol assignment", "2001::1": "protocol assignment",
		"2600::5efe:10.0.0.1": "ISATAP", "2600::200:5efe:127.0.0.1": "ISATAP",
		"4000::1": "not a public address", "e000::1": "not a public address", "1::1": "not a public address",
	}
}

func wantRefused(t *testing.T, err error, reason string) {
	t.Helper()
	refusal, ok := errors.AsType[*addressDeniedError](err)
	if !ok {
		t.Fatalf("error is %v, want one that says that the address is refused", err)
	}
	if !strings.Contains(refusal.reason, reason) {
		t.Errorf("refused because %q, want the reason to have %q", refusal.reason, reason)
	}
}

// TestRefusesBeforeItDials verifies that denied addresses are never connected to. It
// tests a dialer with all of them, and the control function, regardless of the sockets of
// the host.
func TestRefusesBeforeItDials(t *testing.T) {
	if n := len(refused()); n < 60 {
		t.Fatalf("%d addresses, want 60", n)
	}
	for address, reason := range refused() {
		t.Run(address, func(t *testing.T) {
			a := netip.MustParseAddr(address)
			wantRefused(t, addressGuard{}.check(a), reason)
			for _, dialed := range dialedAddresses(a) {
				wantRefused(t, addressGuard{}.control(dialed.network, dialed.address, nil), reason)
			}

			err := dial(t, "tcp", address)
			if cannot(err) && !a.Unmap().Is4() { // the host has no IPv4
				return
			}
			wantRefused(t, err, reason)
		})
	}
}

type dialedAddress struct{ network, address string }

// dialedAddresses returns the arguments of a dialer's control calls before it connects to an address: in its family,
// and for mapped addresses also in that of IPv4.
func dialedAddresses(a netip.Addr) []dialedAddress {
	family := "6"
	if a.Is4() {
		family = "4"
	}
	var all []dialedAddress
	for _, network := range []string{"tcp", "udp"} {
		all = append(all, dialedAddress{network, netip.AddrPortFrom(a, 80).String()}, dialedAddress{network + family, net.JoinHostPort(a.String(), "80")})
		if a.Is4In6() {
			all = append(all, dialedAddress{network + "4", netip.AddrPortFrom(a.Unmap(), 80).String()})
		}
	}
	return all
}

// dial connects if allowed.
func dial(t *testing.T, network, host string) error {
	t.Helper()
	dialer := net.Dialer{Control: addressGuard{}.control, Timeout: time.Minute}
	c, err := dialer.DialContext(t.Context(), network, net.JoinHostPort(host, "80"))
	if err == nil {
		_ = c.Close() // the caller sees that it was allowed
	}
	return err
}

// cannot reports whether no socket could be created, as on a host without IPv6 or without
// the interface of a zone.
func cannot(err error) bool {
	var refusal *addressDeniedError
	return err != nil && !errors.As(err, &refusal) &&
		(strings.Contains(err.Error(), "address family not supported") || strings.Contains(err.Error(), "no suitable address"))
}

func TestLetsThePublicThrough(t *testing.T) {
	for _, address := range []string{
		"1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.1",
		"169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "192.0.1.0", "192.167.255.255", "192.169.0.0",
		"198.17.255.255", "198.20.0.0", "223.255.255.255", "2606:4700:4700::1111", "2a00:1450:4001::64", "2001:4860:4860::8888",
		"::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2600::5efe:8.8.8.8",
	} {
		if err := (addressGuard{}).check(netip.MustParseAddr(address)); err != nil {
			t.Errorf("check(%s) = %v, want nil", address, err)
		}
	}
}

func TestControlRefusesWhatItCannotRead(t *testing.T) {
	cases := map[string]struct{ reason, network, address, want string }{
		"Unix":      {"a socket of the host is no sink", "unix", "/var/run/docker.sock", "is not TCP or UDP"},
		"RawIP":     {"raw packets are nobody's sink", "ip4:icmp", "8.8.8.8", "is not TCP or UDP"},
		"NoPort":    {"an address comes with a port", "tcp", "8.8.8.8", "address:port"},
		"Name":      {"names are resolved before", "tcp", "example.com:443", "is not an address"},
		"Decimal":   {"what is no address is not guessed at", "tcp", "2130706433:80", "is not an address"},
		"Octal":     {"leading zeros mean different things to different readers", "tcp", "0177.0.0.1:80", "is not an address"},
		"Empty":     {"no address is this host", "tcp", ":80", "is not an address"},
		"ZonedLoop": {"a zone does not hide an address", "tcp6", "[fe80::1%eth0]:80", "link-local"},
		"UDP":       {"the same holds for UDP", "udp4", "10.0.0.1:53", "private"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := addressGuard{}.control(tc.network, tc.address, nil)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: control(%s, %s) = %v, want an error with %q", tc.reason, tc.network, tc.address, err, tc.want)
			}
		})
	}
}

func TestAddressGuardAllow(t *testing.T) {
	cases := map[string]struct {
		reason  string
		allow   []string
		address string
		want    bool
	}{
		"Network":          {"the network of a sink of one's own", []string{"10.20.0.0/16"}, "10.20.3.4", true},
		"OtherNetwork":     {"and no other", []string{"10.20.0.0/16"}, "10.21.3.4", false},
		"Single":           {"one address", []string{"127.0.0.1"}, "127.0.0.1", true},
		"SingleNext":       {"and not its neighbour", []string{"127.0.0.1"}, "127.0.0.2", false},
		"Mapped":           {"however it is written", []string{"10.20.0.0/16"}, "::ffff:10.20.3.4", true},
		"MappedPrefix":     {"or allowed", []string{"::ffff:10.20.0.0/112"}, "10.20.3.4", true},
		"Translated":       {"or reached", []string{"10.20.0.0/16"}, "64:ff9b::10.20.3.4", true},
		"Zone":             {"a zone is no part of a prefix", []string{"fe80::/10"}, "fe80::1%eth0", true},
		"MetadataByWide":   {"nobody means the metadata who allows all", []string{"0.0.0.0/0", "::/0"}, "169.254.169.254", false},
		"MetadataMapped":   {"nor in another writing", []string{"0.0.0.0/0", "::/0"}, "::ffff:169.254.169.254", false},
		"MetadataBehind":   {"nor where it is translated", []string{"64:ff9b::/96"}, "64:ff9b::a9fe:a9fe", false},
		"MetadataByItself": {"but who says so", []string{"169.254.169.254"}, "169.254.169.254", true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			allow, err := parseAllowedAddresses(tc.allow)
			if err != nil {
				t.Fatal(err)
			}
			if err := (addressGuard{allow: allow}).check(netip.MustParseAddr(tc.address)); (err == nil) != tc.want {
				t.Errorf("%s: check(%s) with %v = %v, want it to pass: %t", tc.reason, tc.address, tc.allow, err, tc.want)
			}
		})
	}
}

func TestParseAllowedAddresses(t *testing.T) {
	got, err := parseAllowedAddresses([]string{" 10.20.0.0/16 ", "192.168.1.1", "fd00::/8", "::ffff:10.0.0.0/104"})
	want := []netip.Prefix{
		netip.MustParsePrefix("10.20.0.0/16"), netip.MustParsePrefix("192.168.1.1/32"), netip.MustParsePrefix("fd00::/8"), netip.MustParsePrefix("10.0.0.0/8"),
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{})); err != nil || diff != "" {
		t.Errorf("parseAllowedAddresses = %v (-want +got):\n%s", err, diff)
	}
	for text, want := range map[string]string{
		"": "not an IP address or a CIDR", "example.com": "not an IP address or a CIDR", "10.0.0.0/33": "not a CIDR", "10.0.0.1/8": "use 10.0.0.0/8",
		"fe80::1%eth0": "not an IP address or a CIDR", "::ffff:0:0/90": "larger", "010.0.0.1": "not an IP address or a CIDR",
	} {
		if _, err := parseAllowedAddresses([]string{text}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("parseAllowedAddresses(%q) = %v, want an error with %q", text, err, want)
		}
	}
}

// newInside starts a server on loopback that must not be reached.
func newInside(t *testing.T) (port string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s reached a server on the loopback", r.Host)
	}))
	t.Cleanup(server.Close)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func newGuardedHTTPClient(t *testing.T, guard addressGuard, resolver *net.Resolver) *http.Client {
	t.Helper()
	dialer := net.Dialer{Control: guard.control, Resolver: resolver}
	transport := &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func get(t *testing.T, c *http.Client, url string) (string, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end below
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body), nil
}

// TestOddHosts uses hosts that some parsers read as 127.0.0.1, with a DNS server that
// does, too. Go does not resolve a number as a name.
func TestOddHosts(t *testing.T) {
	port := newInside(t)
	resolver := newResolver(t, func(string) netip.Addr { return netip.MustParseAddr("127.0.0.1") })
	for host, lookedUp := range map[string]bool{
		"localhost": true, "LOCALHOST": true, "localhost.": true, "inside.example.com": true, "2130706433": false, "0x7f000001": true, "017700000001": false,
		"0177.0.0.1": false, "0x7f.0.0.1": true, "127.1": false, "127.0.1": false, "0": false, "0.0.0.0": true, "127.0.0.1": true, "[::1]": true,
		"[::ffff:127.0.0.1]": true, "[::ffff:7f00:1]": true, "[0:0:0:0:0:0:0:1]": true, "127.0.0.1.nip.example": true,
	} {
		t.Run(host, func(t *testing.T) {
			wantRefused(t, addressGuard{}.control("tcp", host+":"+port, nil), "") // an address of this host, or not an address
			for name, r := range map[string]*net.Resolver{"Scripted": resolver, "System": nil} {
				if name == "System" && strings.Contains(host, "example") {
					continue
				}
				body, err := get(t, newGuardedHTTPClient(t, addressGuard{}, r), "http://"+host+":"+port+"/")
				if err == nil {
					t.Errorf("%s: answered %q", name, body)
				}
				switch {
				case name == "System", cannot(err) && strings.Contains(host, ":"): // tested above, without a socket
				case !lookedUp:
					if !unresolved(err) {
						t.Errorf("%v, want that there is no such host", err)
					}
				case cannot(err): // the name has an address of the other family
					wantRefused(t, dial(t, "tcp4", host), "loopback")
				default:
					wantRefused(t, err, "")
				}
			}
		})
	}
}

// unresolved reports whether a host was never looked up.
func unresolved(err error) bool {
	failure, ok := errors.AsType[*net.DNSError](err)
	return ok && failure.IsNotFound
}

// TestRebinding uses a name that resolves to a public address first and to a private one
// later, like a DNS server with a short TTL.
func TestRebinding(t *testing.T) {
	port := newInside(t)
	outside := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "outside") // the client sees what is missing
	}), ReadHeaderTimeout: time.Minute}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.2:"+port)
	if err != nil {
		t.Fatalf("this host has no second address on its loopback, without which nothing points outward: %v", err)
	}
	go outside.Serve(listener) //nolint:errcheck // ends when the test closes it
	t.Cleanup(func() { _ = outside.Close() })

	var inward atomic.Bool
	resolver := newResolver(t, func(string) netip.Addr {
		if inward.Load() {
			return netip.MustParseAddr("127.0.0.1")
		}
		return netip.MustParseAddr("127.0.0.2")
	})
	client := newGuardedHTTPClient(t, addressGuard{allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}}, resolver)

	body, err := get(t, client, "http://sink.example.com:"+port+"/")
	if err != nil || body != "outside" {
		t.Fatalf("while the name points outside: %q, %v", body, err)
	}
	inward.Store(true)
	_, err = get(t, client, "http://sink.example.com:"+port+"/")
	wantRefused(t, err, "loopback")
}

// newResolver resolves all names with a test DNS server.
func newResolver(t *testing.T, answer func(name string) netip.Addr) *net.Resolver {
	t.Helper()
	server, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 1500)
		for {
			n, from, err := server.ReadFrom(buf)
			if err != nil {
				return
			}
			if reply := reply(buf[:n], answer); reply != nil {
				_, _ = server.WriteTo(reply, from) // lost like any datagram
			}
		}
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp4", server.LocalAddr().String())
	}}
}

// reply answers a DNS query for an IPv4 address, and returns no records for other types.
func reply(query []byte, answer func(name string) netip.Addr) []byte {
	const header = 12
	var name []string
	at := header
	for at < len(query) && query[at] != 0 {
		end := at + 1 + int(query[at])
		if end > len(query) {
			return nil
		}
		name = append(name, string(query[at+1:end]))
		at = end
	}
	at += 5 // the end of the name, the type and the class
	if at > len(query) {
		return nil
	}
	question := query[header:at]
	out := append([]byte{query[0], query[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, question...)
	if query[at-3] != 1 { // not of type A
		return out
	}
	out[7] = 1
	ip := answer(strings.Join(name, ".")).As4()
	out = append(out, 0xC0, header, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
	return append(out, ip[:]...)
}

// TestNoWritingHidesAnAddress verifies that all notations of an address have the same
// result.
func TestNoWritingHidesAnAddress(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v4 := [4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "v4"))
		a := netip.AddrFrom4(v4)
		err := addressGuard{}.check(a)
		if a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified() {
			if err == nil {
				t.Fatalf("%s passes", a)
			}
		}
		translated := netip.MustParseAddr("64:ff9b::").As16()
		copy(translated[12:], v4[:])
		for _, same := range []netip.Addr{netip.AddrFrom16(a.As16()), netip.AddrFrom16(translated)} {
			if got := (addressGuard{}).check(same); (got == nil) != (err == nil) {
				t.Fatalf("%s: %v, and as %s: %v", a, err, same, got)
			}
		}
		tunnel := [16]byte{0x20, 0x02, v4[0], v4[1], v4[2], v4[3]}
		compatible := [16]byte{12: v4[0], 13: v4[1], 14: v4[2], 15: v4[3]}
		for _, old := range [][16]byte{tunnel, compatible} {
			if (addressGuard{}).check(netip.AddrFrom16(old)) == nil {
				t.Fatalf("%s passes", netip.AddrFrom16(old))
			}
		}
	})
}

func TestNothingInwardPasses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := netip.AddrFrom16([16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "v6")))
		if (addressGuard{}).check(a) == nil && (!a.IsGlobalUnicast() || a.IsPrivate()) {
			t.Fatalf("%s passes", a)
		}
	})
}
