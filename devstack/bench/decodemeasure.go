package main

import (
	"fmt"
	"syscall"
	"time"
)

// A decodingResult is the result of measurePageDecoding, in CPU time per resource.
type decodingResult struct {
	Round, TokenWalk, Plain time.Duration
	BytesPerResource        int
}

// VsTokenWalk returns the cost of a round relative to walking the tokens of its bytes.
func (r decodingResult) VsTokenWalk() float64 { return float64(r.Round) / float64(r.TokenWalk) }

// VsPlain returns the cost of encoding/json into full structs relative to a round.
func (r decodingResult) VsPlain() float64 { return float64(r.Plain) / float64(r.Round) }

// measurePageDecoding reads a page of the given number of resources in all three ways, alternately. It returns
// the best time of each, because a disturbance can only lengthen a measurement. It takes about four
// times budget.
func measurePageDecoding(resources int, budget time.Duration) (decodingResult, error) {
	now := time.Now()
	page := newCollectionPage(resources, now)
	rounder := newRounder()
	ways := []struct {
		name string
		work func() (int, error)
		want int // 0 accepts any count
		best time.Duration
	}{
		{name: "round", work: func() (int, error) { return rounder.ScanAndDecide(page, now) }, want: resources},
		{name: "token walk", work: func() (int, error) { return countTokens(page) }},
		{name: "encoding/json", work: func() (int, error) { return unmarshalAndDecide(page, now) }, want: resources},
	}
	const turns = 20
	for range turns {
		for i := range ways {
			w := &ways[i]
			took, err := measureCPUPerCall(budget/turns, func() error {
				n, err := w.work()
				if err == nil && w.want != 0 && n != w.want {
					err = fmt.Errorf("skipped %d of %d", n, w.want)
				}
				return err
			})
			if err != nil {
				return decodingResult{}, fmt.Errorf("measure %s: %w", w.name, err)
			}
			if w.best == 0 || took < w.best {
				w.best = took
			}
		}
	}
	per := time.Duration(resources)
	return decodingResult{
		Round: ways[0].best / per, TokenWalk: ways[1].best / per, Plain: ways[2].best / per,
		BytesPerResource: len(page) / resources,
	}, nil
}

// measureCPUPerCall calls work for about d and returns the CPU time of one call, including the garbage
// collector.
func measureCPUPerCall(d time.Duration, work func() error) (time.Duration, error) {
	begin, before, calls := time.Now(), readProcessCPUTime(), 0
	for calls == 0 || time.Since(begin) < d {
		if err := work(); err != nil {
			return 0, err
		}
		calls++
	}
	return (readProcessCPUTime() - before) / time.Duration(calls), nil
}

// readProcessCPUTime returns the CPU time of this process so far.
func readProcessCPUTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // it fails for invalid arguments only
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
