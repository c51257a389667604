package console

import (
	"errors"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

var errTooMany = errors.New("too many attempts to sign in")

// maxAddresses limits the memory of a limiter. Beyond it, all further addresses share one limit.
const maxAddresses = 4096

// A signInLimiter limits attempts by address.
type signInLimiter struct {
	perMinute int

	mu        sync.Mutex
	addresses map[string]*rate.Limiter
	cleared   time.Time
}

func newSignInLimiter(attemptsPerMinute int) *signInLimiter {
	return &signInLimiter{perMinute: attemptsPerMinute, addresses: map[string]*rate.Limiter{}}
}

func (l *signInLimiter) takeAttempt(address string) (allowed bool) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.cleared) > time.Minute {
		l.cleared = now
		for a, limit := range l.addresses {
			if limit.TokensAt(now) >= float64(l.perMinute) {
				delete(l.addresses, a)
			}
		}
	}
	if _, known := l.addresses[address]; !known && len(l.addresses) >= maxAddresses {
		address = ""
	}
	limit := l.addresses[address]
	if limit == nil {
		limit = rate.NewLimiter(rate.Limit(l.perMinute)/60, l.perMinute)
		l.addresses[address] = limit
	}
	return limit.AllowN(now, 1)
}
