package kubebed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const (
	lockPoll  = 200 * time.Millisecond
	tellEvery = 30 * time.Second
)

// lockCache waits until no other process fills the cache. The kernel releases the lock
// when this process ends.
func (c *cache) lockCache(ctx context.Context) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(c.base, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	unlock = func() { _ = f.Close() }
	poll, tell := time.NewTicker(lockPoll), time.NewTicker(tellEvery)
	defer poll.Stop()
	defer tell.Stop()
	for first := true; ; first = false {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return unlock, nil
		case !errors.Is(err, syscall.EWOULDBLOCK):
			unlock()
			return nil, fmt.Errorf("lock %q: %w", f.Name(), err)
		case first:
			c.log.InfoContext(ctx, "waiting for another process that fills the cache", "dir", c.base)
		}
		select {
		case <-ctx.Done():
			unlock()
			return nil, context.Cause(ctx)
		case <-tell.C:
			c.log.InfoContext(ctx, "still waiting for another process that fills the cache", "dir", c.base)
		case <-poll.C:
		}
	}
}
