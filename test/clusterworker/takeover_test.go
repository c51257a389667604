package clusterworker

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// patient are the times of workers that are not to give up because the machine
// is busy.
func patient() map[string]string {
	return map[string]string{"CLUSTER_WORKER_LEASE_DURATION": "10s", "CLUSTER_WORKER_CALL_TIMEOUT": "4500ms", "RECONCILE_INTERVAL": "5s", "CLUSTER_WORKER_LEADER_LEASE_DURATION": "5s"}
}

// lostClaim is what a worker says whose result the database did not take.
const lostClaim = "claim lost, result discarded"

// givenUpClaim is what a worker says that ended a call because its lease was over.
const givenUpClaim = "claim abandoned"

func writes(q *request) bool { return q.write }

// newEditor makes a fixture with Gardener at work in its project.
func newEditor(t *testing.T) *editor {
	t.Helper()
	e := &editor{fixture: newFixture(t)}
	e.gardenlet(50 * time.Millisecond)
	e.witness()
	return e
}

// made adds a cluster.
func (e *editor) made(pools int) *cluster {
	e.Helper()
	c, err := e.add(e.Context(), pools)
	if err != nil {
		e.Fatal(err)
	}
	return c
}

// changed changes a cluster.
func (e *editor) changed(c *cluster) {
	e.Helper()
	if err := e.edit(e.Context(), c); err != nil {
		e.Fatal(err)
	}
}

// wantNoBreach holds what was seen against what must never be.
func (e *editor) wantNoBreach() {
	e.Helper()
	for _, b := range e.book.found() {
		e.Errorf("cluster %s, Shoot %s: %s\n%s", b.cluster, b.shoot, b.text, e.history(b.cluster))
	}
}

// wantCame waits for a request that is judged.
func (e *editor) wantCame(came <-chan *request) *request {
	e.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case q := <-came:
		return q
	case <-timer.C:
		e.Fatal("the request did not come")
		return nil
	}
}

// wantWritten waits until the garden has answered n requests that write.
func (e *editor) wantWritten(n int) []passage {
	e.Helper()
	var list []passage
	e.await("requests that write", func() error {
		list = e.book.writes(func(p passage) bool { return p.shoot != "" })
		if len(list) < n {
			return fmt.Errorf("there are %d, want %d", len(list), n)
		}
		return nil
	})
	return list
}

// TestKilledInTheMiddleOfAnApply: the garden has taken a Shoot, and whoever
// asked for it is killed before it knows. Another worker takes over when the
// lease ends, and finds what is there.
func TestKilledInTheMiddleOfAnApply(t *testing.T) {
	t.Parallel()
	e := newEditor(t)
	first, second := e.newWorker(patient()), e.newWorker(patient())
	came := e.way.once(writes, fault{kind: swallowed})
	first.begin()
	c := e.made(1)
	e.wantCame(came)
	e.wantWritten(1)
	first.kill()
	if x := e.row(c); !x.Claimed || x.Synced {
		t.Fatalf("the killed worker has written a result: %+v", x)
	}
	ends := ask[time.Time](e.fixture, `select due_at from tenant.cluster_sync where cluster_id = $1`, c.id)
	second.begin()
	e.wantAgreement()
	list := e.wantWritten(2)
	for _, p := range list[1:] { // an answer that refuses, such as a conflict, does not say the uid
		if p.by.worker != second.name || p.from.Before(ends) || p.wrote() && p.uid != list[0].uid {
			t.Errorf("%s at %s, with the lease until %s and the Shoot of uid %s\n%s", p, p.from, ends, list[0].uid, e.history(c.id))
		}
	}
	if !slices.ContainsFunc(list[1:], passage.wrote) {
		t.Errorf("the second worker has written nothing: %v\n%s", list[1:], e.history(c.id))
	}
	e.wantNoBreach()
}

// TestStoppedForLongerThanTheLease: a worker that comes back after another has
// taken over neither writes its result nor begins anything.
func TestStoppedForLongerThanTheLease(t *testing.T) {
	t.Parallel()
	e := newEditor(t)
	first, second := e.newWorker(patient()), e.newWorker(patient())
	came := e.way.once(writes, fault{kind: swallowed})
	first.begin()
	c := e.made(1)
	e.wantCame(came)
	e.wantWritten(1)
	goOn, err := first.halt()
	if err != nil {
		t.Fatal(err)
	}
	if x := e.row(c); !x.Claimed {
		t.Fatalf("the worker was stopped too late: %+v", x)
	}
	e.changed(c)
	second.begin()
	e.wantAgreement()
	// How far Gardener is goes on by itself.
	look := func() row {
		x := e.row(c)
		x.ShootStatus = ""
		return x
	}
	before, back := look(), time.Now()
	if err := goOn(); err != nil {
		t.Fatal(err)
	}
	e.await("the late result", func() error {
		if cmp.Equal(before, look()) && len(first.now().find(lostClaim))+len(first.now().find(givenUpClaim)) == 0 {
			return errors.New("neither refused, nor given up, nor written")
		}
		return nil
	})
	first.now().wantHealth(t, "/readyz", 200)
	if d := cmp.Diff(before, look()); d != "" {
		t.Errorf("the late result changed something (-before +after):\n%s\n%s", d, e.history(c.id))
	}
	if late := e.book.writes(func(p passage) bool { return p.by.worker == first.name && p.from.After(back) }); len(late) > 0 {
		t.Errorf("it wrote after its lease: %v\n%s", late, e.history(c.id))
	}
	e.wantAgreement()
	e.wantNoBreach()
}

// TestGivenUpByItsSender: a worker gives up a request that the garden takes too long
// for, and writes that the try failed. An edit is taken by another worker while
// the garden is still at the first request. The two calls are one after the other,
// and the garden refuses what it did too late.
func TestGivenUpByItsSender(t *testing.T) {
	t.Parallel()
	e := newEditor(t)
	workers := map[string]*worker{}
	for range 2 {
		w := e.newWorker(nil)
		w.begin()
		workers[w.name] = w
	}
	open := make(chan struct{})
	came := e.way.once(writes, fault{kind: busy, until: open})
	c := e.made(1)
	q := e.wantCame(came)
	e.await("the worker gives up", func() error {
		if x := e.row(c); x.Claimed || x.Error == "" {
			return fmt.Errorf("the row is %+v", x)
		}
		return nil
	})
	workers[q.by.worker].kill() // so that it is the other one that goes on
	e.changed(c)
	e.wantWritten(1)
	close(open)
	list := e.wantWritten(2)
	if list[0].by == q.by || list[1].by != q.by || list[1].wrote() || !list[1].from.Before(list[0].from) {
		t.Errorf("the garden answered %v, want the first request last, and refused\n%s", list, e.history(c.id))
	}
	e.checkOverlaps()
	e.wantAgreement()
	e.wantNoBreach()
}

// TestEditDuringACall: an edit neither waits for a call that is slow nor is lost.
func TestEditDuringACall(t *testing.T) {
	t.Parallel()
	e := newEditor(t)
	w := e.newWorker(patient())
	open := make(chan struct{})
	came := e.way.once(writes, fault{kind: slow, until: open})
	w.begin()
	c := e.made(2)
	e.wantCame(came)
	for range 5 { // one that waited for the call would never return
		e.changed(c)
	}
	if err := e.removePool(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if x := e.row(c); !x.Claimed || len(e.book.writes(writesOf(c))) != 0 {
		t.Fatalf("the call has ended: %+v", x)
	}
	close(open)
	e.wantAgreement()
	var taken []int64
	for _, p := range e.book.writes(writesOf(c)) {
		if p.wrote() { // one can meet Gardener, which writes to the Shoot as well
			taken = append(taken, p.generation)
		}
	}
	if d := cmp.Diff([]int64{3, 9}, taken); d != "" {
		t.Errorf("the generations that the garden took (-want +got):\n%s\n%s", d, e.history(c.id))
	}
	e.wantNoBreach()
}

func writesOf(c *cluster) func(passage) bool {
	return func(p passage) bool { return p.cluster == c.id }
}

// TestLateRequest: a request that the network kept until a newer one was taken
// changes nothing.
func TestLateRequest(t *testing.T) {
	t.Parallel()
	e := newEditor(t)
	w := e.newWorker(nil)
	w.begin()
	c := e.made(1)
	e.wantAgreement()
	open := make(chan struct{})
	came := e.way.once(writes, fault{kind: late, until: open})
	e.changed(c)
	e.wantCame(came)
	e.changed(c)
	e.wantAgreement()
	close(open)
	var kept []passage
	e.await("the late request", func() error {
		if kept = e.book.writes(func(p passage) bool { return p.late }); len(kept) == 0 {
			return errNotInTime
		}
		return nil
	})
	if kept[0].wrote() {
		t.Errorf("%s\n%s", kept[0], e.history(c.id))
	}
	e.wantAgreement()
	e.wantNoBreach()
}

// TestLateCreation: a request to make a Shoot that the network kept until the
// cluster was deleted makes a Shoot that nobody wants. It goes.
func TestLateCreation(t *testing.T) {
	t.Parallel()
	e := newEditor(t)
	w := e.newWorker(map[string]string{"RECONCILE_INTERVAL": "2s"})
	open := make(chan struct{})
	came := e.way.once(writes, fault{kind: late, until: open})
	w.begin()
	c := e.made(1)
	q := e.wantCame(came)
	if err := e.remove(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	e.wantAgreement()
	close(open)
	e.await("the late Shoot", func() error {
		if list := e.book.writes(func(p passage) bool { return p.late && p.wrote() }); len(list) == 0 {
			return errNotInTime
		}
		return nil
	})
	if err := poll(t.Context(), func() error { return e.noShoot(q.shoot) }); err != nil {
		t.Fatalf("%v\n%s", err, e.history(c.id))
	}
	e.wantAgreement()
}
