package main

import (
	"testing"
	"time"
)

func TestAllWaysAgree(t *testing.T) {
	const n = 100
	now := time.Now()
	page := newCollectionPage(n, now)
	if got, err := newRounder().ScanAndDecide(page, now); err != nil || got != n {
		t.Errorf("round: skipped %d, err %v", got, err)
	}
	if got, err := unmarshalAndDecide(page, now); err != nil || got != n {
		t.Errorf("encoding/json: skipped %d, err %v", got, err)
	}
	if got, err := countTokens(page); err != nil || got < 50*n {
		t.Errorf("token walk: %d tokens, err %v", got, err)
	}
	// A day later all of it is due: the work that is measured is real.
	if got, err := newRounder().ScanAndDecide(page, now.Add(24*time.Hour)); err != nil || got != 0 {
		t.Errorf("round a day later: skipped %d, err %v", got, err)
	}
}

func TestRoundAllocatesNothing(t *testing.T) {
	now := time.Now()
	page := newCollectionPage(200, now)
	r := newRounder()
	got := testing.AllocsPerRun(20, func() {
		if _, err := r.ScanAndDecide(page, now); err != nil {
			t.Fatal(err)
		}
	})
	if got > 10 {
		t.Errorf("a page of 200 resources costs %.0f allocations", got)
	}
}

func TestMeasurePageDecoding(t *testing.T) {
	res, err := measurePageDecoding(50, 20*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if res.Round <= 0 || res.VsTokenWalk() <= 0 || res.VsPlain() <= 1 {
		t.Errorf("got %+v", res)
	}
	t.Logf("%d bytes each: round %s, token walk %s (x%.2f), encoding/json %s (x%.1f)",
		res.BytesPerResource, res.Round, res.TokenWalk, res.VsTokenWalk(), res.Plain, res.VsPlain())
}

func BenchmarkRound(b *testing.B) {
	now := time.Now()
	page := newCollectionPage(500, now)
	r := newRounder()
	b.SetBytes(int64(len(page)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.ScanAndDecide(page, now); err != nil {
			b.Fatal(err)
		}
	}
}
