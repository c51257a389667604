package intake

import (
	"cmp"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
	lru "k8s.io/apimachinery/pkg/util/cache"
)

// Defaults for the zero values of NewCallerLimits.
const (
	DefaultCallerRate  = 50
	DefaultCallerBurst = 200
)

const (
	keptCallers    = 1024
	callerIdleTime = 10 * time.Minute // after this time a caller has its full burst again
)

// CallerLimits limits the rate of each caller. A monitor in a loop, or a host that guesses
// tokens, then does not affect others. It is safe for concurrent use.
//
// Only the last thousand active callers are remembered. A caller that invents names gets a
// new limit for each of them, so names that can be invented also need a limit for all
// callers together.
type CallerLimits struct {
	rate  rate.Limit
	burst int

	mu       sync.Mutex
	limiters *lru.LRUExpireCache // *rate.Limiter by caller
}

// NewCallerLimits creates limits of calls per second, and of calls at once after a pause.
// Zero means DefaultCallerRate and DefaultCallerBurst.
func NewCallerLimits(perSecond float64, burst int) *CallerLimits {
	return &CallerLimits{
		rate:     rate.Limit(cmp.Or(perSecond, DefaultCallerRate)),
		burst:    cmp.Or(burst, DefaultCallerBurst),
		limiters: lru.NewLRUExpireCache(keptCallers),
	}
}

// PerSecond returns how many calls per second a caller may make.
func (l *CallerLimits) PerSecond() float64 { return float64(l.rate) }

// Allow reports whether a caller may call now.
func (l *CallerLimits) Allow(caller string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	known, _ := l.limiters.Get(caller)
	limiter, isKnown := known.(*rate.Limiter)
	if !isKnown {
		limiter = rate.NewLimiter(l.rate, l.burst)
	}
	l.limiters.Add(caller, limiter, callerIdleTime)
	return limiter.AllowN(now, 1)
}

// originBits is the prefix length of IPv6 networks, because a host controls its whole
// network.
const originBits = 64

// CallerIPOrIPv6Prefix returns the origin of a caller from the remote address of a connection, with or
// without a port. It is an IPv4 address, or the network of an IPv6 address, in which one
// host may have any number of addresses.
func CallerIPOrIPv6Prefix(address string) string {
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
	return netip.PrefixFrom(a, originBits).Masked().String()
}
