package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fleetloop/fleetloop/devstack/proof/faults"
)

const (
	brokerDiskSize   = 256 << 20
	databaseDiskSize = 1 << 30
	refillEvery      = 100 * time.Millisecond
	// recoveryBound is the longest time until a database that ran out of space accepts writes again.
	recoveryBound = 10 * time.Second
)

func canLimitDisks() bool { return runtime.GOOS == "linux" && os.Geteuid() == 0 }

// A disk is a folder of limited size, which a fault can fill. Without limit it is an ordinary folder.
type disk struct {
	dir     string
	limited bool
}

// newDisk creates a folder, with a limited size if the faults need that. close of the topology removes it at
// the latest.
func (t *topology) newDisk(name string, size int64) (*disk, error) {
	d := &disk{dir: filepath.Join(t.dir, name), limited: t.limitDisks}
	if err := os.MkdirAll(d.dir, 0o711); err != nil { //nolint:gosec // passed through by the user of PostgreSQL
		return nil, err
	}
	if !d.limited {
		return d, nil
	}
	if err := mountLimited(d.dir, size); err != nil {
		return nil, fmt.Errorf("mount a disk of limited size on %s: %w", d.dir, err)
	}
	t.mu.Lock()
	t.mounted = append(t.mounted, d)
	t.mu.Unlock()
	return d, nil
}

func (t *topology) newDatabaseDisk(name string) (*disk, error) {
	return t.newDisk(name, databaseDiskSize)
}

// unmountKeepingCopies removes a limited disk with all its files, except for the named ones: they are copied to the folder above.
func (d *disk) unmountKeepingCopies(files ...string) error {
	if d == nil || !d.limited {
		return nil
	}
	d.limited = false
	var errs []error
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join(d.dir, name)) //nolint:gosec // our own folder
		if err == nil {
			err = os.WriteFile(d.dir+"-"+name, text, 0o644) //nolint:gosec // a log that anyone may read
		}
		errs = append(errs, err)
	}
	return errors.Join(append(errs, unmount(d.dir))...)
}

// startFilling fills the disk and keeps it full. free removes what was written.
func (d *disk) startFilling(ctx context.Context) (free func() error, err error) {
	path := filepath.Join(d.dir, "full")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) //nolint:gosec // our own folder
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	err = writeUntilFull(file)
	var filling sync.WaitGroup
	filling.Go(func() {
		for pauseFor(ctx, refillEvery) {
			_ = writeUntilFull(file) // what is free now was in use before
		}
	})
	return func() error {
		cancel()
		filling.Wait()
		// Truncated first: a process that was forked just now holds a copy of the file until it runs its program.
		return errors.Join(file.Truncate(0), file.Close(), os.Remove(path))
	}, err
}

// writeUntilFull appends zeros to a file until there is no space left.
func writeUntilFull(file io.Writer) error {
	for size := 1 << 20; size >= 512; {
		_, err := file.Write(make([]byte, size))
		switch {
		case errors.Is(err, syscall.ENOSPC):
			size /= 2
		case err != nil:
			return err
		}
	}
	return nil
}

// fillBrokerDiskThenRestart fills the disk of a broker server. Afterwards the server is restarted, because NATS does not use a
// disk again on which a write failed.
func (t *topology) fillBrokerDiskThenRestart(ctx, schedule context.Context, index int, f faults.Fault) error {
	p := t.groups[t.broker][index]
	var free func() error
	return f.Hold(schedule, func() (err error) {
		p.holdAfterExit()
		free, err = t.disks[index].startFilling(ctx)
		return err
	}, func() error {
		var err error
		if free != nil {
			err = free()
		}
		return errors.Join(err, p.kill(true), p.unhold(ctx))
	})
}

// fillPrimaryDiskAndRecover fills the disk of the primary. If the primary does not recover afterwards, the standby takes over.
func (d *database) fillPrimaryDiskAndRecover(ctx, schedule context.Context, f faults.Fault) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var free func() error
	err := f.Hold(schedule, func() (err error) {
		free, err = d.nodes[d.primary].disk.startFilling(ctx)
		return err
	}, func() error {
		if free == nil {
			return nil
		}
		return free()
	})
	if err != nil {
		return err
	}
	if poll(ctx, recoveryBound, d.checkPrimaryWritable) == nil {
		return nil
	}
	return d.killPrimaryAndFailOverLocked(ctx)
}

// checkPrimaryWritable commits a transaction.
func (d *database) checkPrimaryWritable(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return d.onPrimary(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "select pg_current_xact_id()")
		return err
	})
}
