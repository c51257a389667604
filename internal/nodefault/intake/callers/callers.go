// Package callers limits the rate of each caller. A monitor in a loop, or a host that
// guesses tokens, then does not affect others.
//
// Only the last thousand active callers are remembered. A caller that invents names gets
// a new limit for each of them, so names that can be invented also need a limit for all
// callers together.
package callers

import (
	"cmp"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
	lru "k8s.io/apimachinery/pkg/util/cache"
)

// Defaults for the zero values of New.
const (
	DefaultRate  = 50
	DefaultBurst = 200
)

const (
	kept  = 1024
	quiet = 10 * time.Minute // after this time a caller has its full burst again
)

// Limits holds the limits of each caller. It is safe for concurrent use.
type Limits struct {
	rate  rate.Limit
	burst int

	mu    sync.Mutex
	known *lru.LRUExpireCache
}

// New creates limits of calls per second, and of calls at once after a pause. Zero means
// DefaultRate and DefaultBurst.
func New(perSecond float64, burst int) *Limits {
	return &Limits{rate: rate.Limit(cmp.Or(perSecond, DefaultRate)), burst: cmp.Or(burst, DefaultBurst), known: lru.NewLRUExpireCache(kept)}
}

// PerSecond returns how many calls per second a caller may make.
func (l *Limits) PerSecond() float64 { return float64(l.rate) }

// Allow reports whether a caller may call now.
func (l *Limits) Allow(caller string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	limit := rate.NewLimiter(l.rate, l.burst)
	if was, ok := l.known.Get(caller); ok {
		if of, isOne := was.(*rate.Limiter); isOne {
			limit = of
		}
	}
	l.known.Add(caller, limit, quiet)
	return limit.AllowN(now, 1)
}

// placeBits is the prefix length of IPv6 networks, because a host controls its whole
// network.
const placeBits = 64

// Place returns the origin of a caller from the remote address of a connection, with or
// without a port. It is an IPv4 address, or the network of an IPv6 address, in which one
// host may have any number of addresses.
func Place(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		address = host
	}
	a, err := netip.ParseAddr(address)
	if err != nil {
		return address
	}
	a = a.Unmap().WithZone("")
	if a.Is4() {
		return a.String()
	}
	p, err := a.Prefix(placeBits)
	if err != nil {
		return a.String()
	}
	return p.String()
}
