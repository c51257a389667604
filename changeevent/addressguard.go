package changeevent

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
)

// An addressGuard prevents server-side request forgery (SSRF). It denies connections to
// addresses that only the host can reach, such as services of its cluster, the metadata
// service of its cloud, and loopback. The zero value denies all non-public addresses.
//
// It checks the address of each connection after DNS resolution and before the first
// packet. So neither the notation of an address nor DNS rebinding can bypass it.
type addressGuard struct {
	// allow lists non-public addresses that are allowed, such as the network of a
	// private sink. A cloud metadata address is allowed only by a prefix of exactly
	// that address.
	allow []netip.Prefix
}

// An addressDeniedError reports which address was denied, and why.
type addressDeniedError struct {
	// address is invalid if there was no address to parse.
	address netip.Addr
	// reason explains the denial, such as "it is a cloud metadata address".
	reason string
}

// Error implements error.
func (e *addressDeniedError) Error() string {
	if !e.address.IsValid() {
		return "connection denied: " + e.reason
	}
	return fmt.Sprintf("address %s is not allowed: %s; if the sink has this address, add it to allow_addresses", e.address, e.reason)
}

// privateNetworksToAllow returns the private networks of RFC 1918, RFC 6598 and RFC 4193. In
// addressGuard.allow they allow the services of a cluster, but neither loopback nor
// link-local addresses.
func privateNetworksToAllow() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"),
		netip.MustParsePrefix("172.16.0.0/12"),
		netip.MustParsePrefix("192.168.0.0/16"),
		netip.MustParsePrefix("100.64.0.0/10"),
		netip.MustParsePrefix("fc00::/7"),
	}
}

// parseAllowedAddresses parses CIDR prefixes, such as 10.20.0.0/16, and single addresses.
func parseAllowedAddresses(texts []string) ([]netip.Prefix, error) {
	prefixes := make([]netip.Prefix, 0, len(texts))
	for _, text := range texts {
		p, err := parseAddressOrCIDR(strings.TrimSpace(text))
		if err != nil {
			return nil, err
		}
		prefixes = append(prefixes, p)
	}
	return prefixes, nil
}

func parseAddressOrCIDR(text string) (netip.Prefix, error) {
	if !strings.Contains(text, "/") {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" {
			return netip.Prefix{}, fmt.Errorf("%q is not an IP address or a CIDR such as 10.20.0.0/16", text)
		}
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is not a CIDR such as 10.20.0.0/16", text)
	}
	if p.Addr().Is4In6() {
		const mapped = 96
		if p.Bits() < mapped {
			return netip.Prefix{}, fmt.Errorf("%q is larger than the IPv4 address space", text)
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-mapped)
	}
	if p != p.Masked() {
		return netip.Prefix{}, fmt.Errorf("%q has host bits set: use %s", text, p.Masked())
	}
	return p, nil
}

// control is a net.Dialer.Control function. It allows only TCP and UDP to addresses
// that pass check.
func (g addressGuard) control(network, address string, _ syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") && !strings.HasPrefix(network, "udp") {
		return &addressDeniedError{reason: fmt.Sprintf("network %q is not TCP or UDP", network)}
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return &addressDeniedError{reason: fmt.Sprintf("%q is not address:port", address)}
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return &addressDeniedError{reason: fmt.Sprintf("%q is not an address", host)}
	}
	return g.check(a)
}

// check returns an *addressDeniedError for an address that is not allowed.
func (g addressGuard) check(a netip.Addr) error {
	reason := g.denialReason(a.Unmap().WithZone(""))
	if reason == "" {
		return nil
	}
	return &addressDeniedError{address: a, reason: reason}
}

// denialReason returns why an address is denied, or "". The address must not be an
// IPv4-mapped IPv6 address and must have no zone.
func (g addressGuard) denialReason(a netip.Addr) string {
	if !a.IsValid() {
		return "it is not a valid address"
	}
	host := netip.PrefixFrom(a, a.BitLen())
	inner, how, within := ipv4InNAT64OrISATAP(a)
	secret := isCloudMetadataAddress(a) || within && isCloudMetadataAddress(inner)
	for _, p := range g.allow {
		if p.Contains(a) && (!secret || p == host) {
			return ""
		}
	}
	if secret {
		return "it is a cloud metadata address"
	}
	for _, s := range nonPublicBlocks() {
		if s.prefix.Contains(a) {
			return fmt.Sprintf("it is in the %s range (%s)", s.what, s.prefix)
		}
	}
	if within {
		if reason := g.denialReason(inner); reason != "" {
			return fmt.Sprintf("it maps to %s by %s, and %s", inner, how, reason)
		}
		return ""
	}
	if a.Is6() && !globalUnicastIPv6Prefix().Contains(a) {
		return "it is not a public address"
	}
	return ""
}

// ipv4InNAT64OrISATAP returns the IPv4 address that a gateway or a tunnel derives from an IPv6
// address.
func ipv4InNAT64OrISATAP(a netip.Addr) (inner netip.Addr, mechanism string, ok bool) {
	if !a.Is6() {
		return netip.Addr{}, "", false
	}
	b := a.As16()
	last := netip.AddrFrom4([4]byte(b[12:16]))
	switch {
	case nat64Prefix().Contains(a):
		return last, "NAT64", true
	case b[8]&0xFC == 0 && b[9] == 0 && b[10] == 0x5E && b[11] == 0xFE:
		return last, "ISATAP", true
	}
	return netip.Addr{}, "", false
}

func nat64Prefix() netip.Prefix { return netip.MustParsePrefix("64:ff9b::/96") }

func globalUnicastIPv6Prefix() netip.Prefix { return netip.MustParsePrefix("2000::/3") }
