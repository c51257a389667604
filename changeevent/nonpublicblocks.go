package changeevent

import (
	"net/netip"
	"slices"
)

// An addressBlock is a range of addresses outside the public internet.
type addressBlock struct {
	prefix netip.Prefix
	what   string
}

// nonPublicBlocks returns the special-purpose blocks of IANA that are not globally
// reachable, and the blocks of old tunnels, which lead elsewhere.
func nonPublicBlocks() []addressBlock {
	of := func(what string, prefixes ...string) []addressBlock {
		blocks := make([]addressBlock, 0, len(prefixes))
		for _, p := range prefixes {
			blocks = append(blocks, addressBlock{netip.MustParsePrefix(p), what})
		}
		return blocks
	}
	return slices.Concat(
		of("loopback", "127.0.0.0/8", "::1/128"),
		of("unspecified", "0.0.0.0/8", "::/128"),
		of("private", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"),
		of("link-local", "169.254.0.0/16", "fe80::/10"),
		of("site-local", "fec0::/10"),
		of("carrier-grade NAT", "100.64.0.0/10"),
		of("protocol assignment", "192.0.0.0/24", "2001::/23", "5f00::/16"),
		of("documentation", "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20"),
		of("benchmarking", "198.18.0.0/15"),
		of("multicast", "224.0.0.0/4", "ff00::/8"),
		of("reserved", "240.0.0.0/4"),
		of("discard-only", "100::/64", "100:0:0:1::/64"),
		of("6to4", "192.88.99.0/24", "2002::/16"),
		of("IPv4-compatible", "::/96"), of("IPv4-translated", "::ffff:0:0:0/96"),
		of("local-use NAT64", "64:ff9b:1::/48"),
	)
}

// isCloudMetadataAddress reports whether an address belongs to the metadata service of a cloud, which
// returns identities and permissions of its machines.
func isCloudMetadataAddress(a netip.Addr) bool {
	switch a.String() {
	case "169.254.169.254", "169.254.170.2", "169.254.170.23", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", // most clouds
		"100.100.100.200", "168.63.129.16", "192.0.0.192": // other clouds
		return true
	}
	return false
}
