package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// file returns a sentinel's configuration for a fleet.
func sentinelFile(url, mode string) string {
	return fmt.Sprintf("resource_type: clusters\nhyperfleet_api: {endpoint: %q}\nsource: {mode: %s}\npoll_interval: 50ms\n", url, mode)
}

// TestChild checks that a child reads a fleet, reports its usage and events, and ends on request.
func TestChild(t *testing.T) {
	fleet := newServedFleet(2000, time.Now().Add(-30*time.Minute)) // all are due
	web := httptest.NewServer(fleet)
	defer web.Close()
	events := make(chan childEvent, 10_000)
	p, err := startChild(t.Context(), sentinelFile(web.URL, "sweep"), childOptions{OnEvent: func(e childEvent) { events <- e }})
	if err != nil {
		t.Fatal(err)
	}
	before, err := p.RequestUsage()
	if err != nil {
		t.Fatal(err)
	}
	if err := fleet.Await(t.Context(), func(c fleetCounts) bool { return c.Swept >= 3 }); err != nil {
		t.Fatal(err)
	}
	after, err := p.RequestUsage()
	if err != nil {
		t.Fatal(err)
	}
	if after.CPU <= before.CPU || after.CPU > time.Minute || after.Peak < 5<<20 || after.Peak > 500<<20 {
		t.Errorf("used %+v, before that %+v", after, before)
	}
	e := <-events
	if ago := time.Since(e.At); !strings.HasPrefix(e.ResourceID, "019a8e30-") || e.Generation != 3 || ago < 0 || ago > time.Minute {
		t.Errorf("event %+v", e)
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := p.RequestUsage(); err == nil {
		t.Error("a child that has ended says what it used")
	}
}

// TestChildEndsWithItsInput: a parent that is killed leaves no child behind.
func TestChildEndsWithItsInput(t *testing.T) {
	fleet := newServedFleet(10, time.Now())
	web := httptest.NewServer(fleet)
	defer web.Close()
	in, parent := io.Pipe()
	out, child := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := runSentinelsAndReportUsage(t.Context(), childSpec{file: sentinelFile(web.URL, "cursor"), count: 2}, in, child)
		_, _ = in.Close(), child.Close() // whoever writes or reads here fails now
		done <- err
	}()
	if _, err := io.WriteString(parent, "\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.HasPrefix(line, lineUsed+" ") {
		t.Errorf("it says %q, %v", line, err)
	}
	if err := parent.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestChildWithABadConfiguration(t *testing.T) {
	if err := runSentinelChild(t.Context(), []string{"resource_type: moons", "", "", "1"}, strings.NewReader(""), io.Discard); err == nil {
		t.Error("a bad configuration is taken")
	}
	if err := runSentinelChild(t.Context(), nil, strings.NewReader(""), io.Discard); err == nil {
		t.Error("no arguments are taken")
	}
}
