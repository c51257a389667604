package main

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// fleetLines produces the lines of a bulk load: clusters with typical labels and specs, each of
// about 450 bytes.
type fleetLines struct {
	rows int
	next int
	rest []byte // unread part of the current line
	buf  []byte
	read atomic.Int64 // number of lines
}

func newFleetLines(rows int) *fleetLines { return &fleetLines{rows: rows} }

// Read implements io.Reader.
func (f *fleetLines) Read(p []byte) (int, error) {
	if len(f.rest) == 0 {
		if f.next == f.rows {
			return 0, io.EOF
		}
		f.buf = f.buf[:0]
		for f.next < f.rows && len(f.buf) < 32<<10 {
			f.buf = f.appendLine(f.buf, f.next)
			f.next++
		}
		f.rest = f.buf
		f.read.Store(int64(f.next))
	}
	n := copy(p, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

func (f *fleetLines) appendLine(b []byte, i int) []byte {
	region := i % 7
	return fmt.Appendf(b, `{"name":"cluster-%07d","labels":{"shard":"%d","region":"eu-%d","environment":"%s","tier":"%s","team":"team-%d"},`+
		`"spec":{"provider":{"type":"aws","region":"eu-%d","zones":["eu-%da","eu-%db","eu-%dc"]},"kubernetes":{"version":"1.34.%d","channel":"stable"},`+
		`"network":{"pods":"10.%d.0.0/16","services":"10.200.0.0/16","provider":"cilium"},"nodes":{"minimum":3,"maximum":%d,"type":"m6i.xlarge"},`+
		`"maintenance":{"day":"sunday","hour":%d}}}`+"\n",
		i, i%16, region, [...]string{"production", "production", "staging", "development"}[i%4], [...]string{"gold", "silver", "bronze"}[i%3], i%211,
		region, region, region, region, i%9, i%256, 3+i%20, i%24)
}

// reportProgress prints the number of lines that were read every five seconds, until end is called.
func (f *fleetLines) reportProgress(w io.Writer) (end func()) {
	var g sync.WaitGroup
	done := make(chan struct{})
	g.Go(func() {
		tick := time.NewTicker(5 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				_, _ = fmt.Fprintf(w, "%d of %d clusters\n", f.read.Load(), f.rows)
			}
		}
	})
	return func() {
		close(done)
		g.Wait()
	}
}
