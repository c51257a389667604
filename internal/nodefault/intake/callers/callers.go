// Package callers bounds how much each of those who call may do: a monitor that
// sends without end, or a machine that tries tokens, costs itself and nobody else.
//
// Of those who have been quiet for a while nothing is known, and so of no more
// than the last thousand. Whoever makes up names without end has each of them
// begin anew, so there must be a bound on all of them together where names can be
// made up.
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

// What the zero values of New mean.
const (
	DefaultRate  = 50
	DefaultBurst = 200
)

const (
	kept  = 1024
	quiet = 10 * time.Minute // after it a caller has its whole burst again
)

// Limits are those of each caller. They are safe for concurrent use.
type Limits struct {
	rate  rate.Limit
	burst int

	mu    sync.Mutex
	known *lru.LRUExpireCache
}

// New makes limits: so many calls a second, and so many at once after a quiet
// time. Zero means DefaultRate and DefaultBurst.
func New(perSecond float64, burst int) *Limits {
	return &Limits{rate: rate.Limit(cmp.Or(perSecond, DefaultRate)), burst: cmp.Or(burst, DefaultBurst), known: lru.NewLRUExpireCache(kept)}
}

// PerSecond is how many calls a caller may make in a second.
func (l *Limits) PerSecond() float64 { return float64(l.rate) }

// Allow says whether a caller may call now.
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

// place bits of an IPv6 address: whoever has one has all of its network.
const placeBits = 64

// Place is where a caller comes from, by the address of a connection, with or
// without its port: an IPv4 address, or the network of an IPv6 one, in which one
// machine may have as many addresses as it likes.
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
