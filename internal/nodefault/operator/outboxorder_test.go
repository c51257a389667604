package operator_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fleetloop/fleetloop/internal/nodefault/operator"
)

// TestResultIsWrittenBeforeTheNextRecord verifies that a record is sent only after the result of the
// one before it is stored. Otherwise a crash would repeat both, the first after the second.
func TestResultIsWrittenBeforeTheNextRecord(t *testing.T) {
	b := newBoard("f1")
	b.tell("cordon", time.Now())
	b.tell("drain-started", time.Now())
	r := b.open(t, operator.EventSink{Name: "pager"})
	r.look(t)
	r.sinks[0].answer("")
	b.refuses = true
	for range 2 {
		r.look(t)
		if got := r.sinks[0].sent; len(got) != 1 {
			t.Fatalf("sent %v before the result of the first was stored", got)
		}
	}
	b.refuses = false
	r.look(t)
	if got := r.sinks[0].sent; len(got) != 2 || b.fault.Status.SinkDeliveries["pager"].ProcessedSequence != 1 {
		t.Fatalf("sent %v, stored %+v; want the next record, and the result of the first", got, b.fault.Status.SinkDeliveries)
	}
	r.sinks[0].answer("")
	r.look(t)
	if got := b.fault.Status.SinkDeliveries["pager"].ProcessedSequence; got != 2 {
		t.Errorf("stored up to %d, want 2", got)
	}
}

// TestNothingIsSentAfterADrain verifies that a drain that begins while a result is written neither
// waits for the next record nor lets it be sent.
func TestNothingIsSentAfterADrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard("f1")
		b.tell("cordon", time.Now())
		b.tell("drain-started", time.Now())
		r := b.open(t, operator.EventSink{Name: "pager"})
		r.look(t)
		r.sinks[0].answer("")
		began := time.Now()
		ended := make(chan error, 1)
		b.during = func() {
			b.during = nil
			go func() { ended <- r.box.StopAwaitAndWriteResults(t.Context()) }()
			synctest.Wait()
		}
		r.look(t)
		if err := <-ended; err != nil || time.Since(began) > 0 {
			t.Errorf("the drain took %s and ended with %v", time.Since(began), err)
		}
		if got := r.sinks[0].sent; len(got) != 1 {
			t.Errorf("sent %v, want only the first", got)
		}
	})
}

// TestDrainWritesResultsAgain verifies that a drain writes a result whose write has failed before.
func TestDrainWritesResultsAgain(t *testing.T) {
	b := newBoard("f1")
	b.tell("cordon", time.Now())
	r := b.open(t, operator.EventSink{Name: "pager"})
	r.look(t)
	r.sinks[0].answer("")
	b.refuses = true
	r.look(t)
	b.refuses = false
	if err := r.box.StopAwaitAndWriteResults(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := b.fault.Status.SinkDeliveries["pager"].ProcessedSequence; got != 1 {
		t.Errorf("stored up to %d, want 1", got)
	}
}
