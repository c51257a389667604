// Package egress keeps a client from being used to reach what only its host can
// reach: the services of its cluster, the metadata of its cloud, its loopback.
//
// A Guard looks at the address of each connection, after names were resolved
// and before the first packet. So it does not matter how an address is written,
// nor whether a name points elsewhere the next time.
package egress

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
)

// A Guard refuses connections to addresses that are not of the public internet.
// The zero value refuses all of them.
type Guard struct {
	// Allow are addresses that are let through nevertheless, such as the network
	// of a sink of one's own. What a cloud keeps its metadata and credentials at
	// is let through only by a prefix of that address alone.
	Allow []netip.Prefix
}

// A RefusedError says which address was refused, and why.
type RefusedError struct {
	// Address is invalid where there was none to read.
	Address netip.Addr
	Reason  string
}

// Error says what was refused and what lets it through.
func (e *RefusedError) Error() string {
	if !e.Address.IsValid() {
		return "connection refused: " + e.Reason
	}
	return fmt.Sprintf("address %s is refused: %s; allow the address if that is where the sink is", e.Address, e.Reason)
}

// Private returns the networks for use within a site: those of RFC 1918, RFC 6598
// and RFC 4193. In a Guard's Allow they let the services of a cluster through,
// and neither loopback nor link-local addresses.
func Private() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"),
		netip.MustParsePrefix("172.16.0.0/12"),
		netip.MustParsePrefix("192.168.0.0/16"),
		netip.MustParsePrefix("100.64.0.0/10"),
		netip.MustParsePrefix("fc00::/7"),
	}
}

// ParseAllow reads prefixes, such as 10.20.0.0/16, and single addresses.
func ParseAllow(texts []string) ([]netip.Prefix, error) {
	prefixes := make([]netip.Prefix, 0, len(texts))
	for _, text := range texts {
		p, err := parsePrefix(strings.TrimSpace(text))
		if err != nil {
			return nil, err
		}
		prefixes = append(prefixes, p)
	}
	return prefixes, nil
}

func parsePrefix(text string) (netip.Prefix, error) {
	if !strings.Contains(text, "/") {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" {
			return netip.Prefix{}, fmt.Errorf("%q is neither an address nor a prefix such as 10.20.0.0/16", text)
		}
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is not a prefix such as 10.20.0.0/16", text)
	}
	if p.Addr().Is4In6() {
		const mapped = 96
		if p.Bits() < mapped {
			return netip.Prefix{}, fmt.Errorf("%q is wider than all of IPv4", text)
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-mapped)
	}
	if p != p.Masked() {
		return netip.Prefix{}, fmt.Errorf("%q has bits beyond its prefix: write %s", text, p.Masked())
	}
	return p, nil
}

// Control is for net.Dialer.Control. It refuses whatever is not TCP or UDP to
// an address that Check lets through.
func (g Guard) Control(network, address string, _ syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") && !strings.HasPrefix(network, "udp") {
		return &RefusedError{Reason: fmt.Sprintf("network %q is neither TCP nor UDP", network)}
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return &RefusedError{Reason: fmt.Sprintf("%q is not an address with a port", address)}
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return &RefusedError{Reason: fmt.Sprintf("%q is not an address", host)}
	}
	return g.Check(a)
}

// Check returns a *RefusedError for an address that is not to be reached.
func (g Guard) Check(a netip.Addr) error {
	reason := g.refuse(a.Unmap().WithZone(""))
	if reason == "" {
		return nil
	}
	return &RefusedError{Address: a, Reason: reason}
}

// refuse is why an address is refused, or "". The address is not one of IPv4
// within IPv6, and has no zone.
func (g Guard) refuse(a netip.Addr) string {
	if !a.IsValid() {
		return "it is no address"
	}
	host := netip.PrefixFrom(a, a.BitLen())
	inner, how, within := embedded(a)
	secret := isMetadata(a) || within && isMetadata(inner)
	for _, p := range g.Allow {
		if p.Contains(a) && (!secret || p == host) {
			return ""
		}
	}
	if secret {
		return "a cloud has its metadata there"
	}
	for _, s := range special() {
		if s.prefix.Contains(a) {
			return fmt.Sprintf("it is %s (%s)", s.what, s.prefix)
		}
	}
	if within {
		if reason := g.refuse(inner); reason != "" {
			return fmt.Sprintf("it is %s by %s, and of that %s", inner, how, reason)
		}
		return ""
	}
	if a.Is6() && !unicast().Contains(a) {
		return "it is not of the public internet"
	}
	return ""
}

// embedded is the address of IPv4 that one of IPv6 leads to, where a gateway
// translates or tunnels.
func embedded(a netip.Addr) (inner netip.Addr, how string, ok bool) {
	if !a.Is6() {
		return netip.Addr{}, "", false
	}
	b := a.As16()
	last := netip.AddrFrom4([4]byte(b[12:16]))
	switch {
	case nat64().Contains(a):
		return last, "NAT64", true
	case b[8]&0xFC == 0 && b[9] == 0 && b[10] == 0x5E && b[11] == 0xFE:
		return last, "ISATAP", true
	}
	return netip.Addr{}, "", false
}

func nat64() netip.Prefix { return netip.MustParsePrefix("64:ff9b::/96") }

func unicast() netip.Prefix { return netip.MustParsePrefix("2000::/3") }
