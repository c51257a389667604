package shard

import (
	"testing"
	"time"
)

// newJoined returns a member whose share is what the others leave; they count it in. Its record is
// at version 20.
func newJoined(t *testing.T, others ...string) *membership {
	t.Helper()
	m := newMembership(modelTiming, "self", "self")
	turn(m, 0)
	written := m.buildDesiredRecord()
	written.Version = 10
	m.processCommandResult(0, command{op: opWrite, record: m.buildDesiredRecord()}, written, nil)
	all := LeaseChange{All: true, Version: 10, Records: []Record{written}}
	for i, name := range others {
		all.Records = append(all.Records, Record{
			Name: name, Epoch: 1, State: Active, Includes: map[string]uint64{"self": 1}, Version: uint64(i + 1),
		})
	}
	m.observeLeaseChange(0, all)
	c, ok := find(turn(m, 0), opWrite)
	if !ok || !m.active {
		t.Fatalf("it has not joined: %v", m.statusError(0))
	}
	written = c.record
	written.Version = 20
	m.processCommandResult(0, c, written, nil)
	return m
}

// turn runs one turn of the loop, with no attempts in progress.
func turn(m *membership, now time.Duration) []command {
	m.updateOwnership(now)
	m.recordDrained()
	todo, _ := m.takeDueCommands(now)
	return todo
}

func find(todo []command, o op) (command, bool) {
	for _, c := range todo {
		if c.op == o {
			return c, true
		}
	}
	return command{}, false
}

// TestAnswerOfAnEpochThatEnded comes late, when the member was declared lost
// since. The record of the next epoch is not written by that.
func TestAnswerOfAnEpochThatEnded(t *testing.T) {
	t.Parallel()
	m := newJoined(t)
	c, ok := find(turn(m, 3*time.Second), opWrite)
	if !ok {
		t.Fatal("the record is not renewed")
	}
	lost := c.record
	lost.State, lost.Version = Lost, 22
	m.observeLeaseChange(14*time.Second, LeaseChange{Version: 22, Records: []Record{lost}})
	written := c.record
	written.Version = 21
	m.processCommandResult(14*time.Second, c, written, nil)
	todo := turn(m, 14*time.Second)
	if m.active || m.confirmed {
		t.Error("an answer of the last epoch confirms the next one")
	}
	if c, ok := find(todo, opWrite); !ok || c.record.Epoch != 2 || c.record.Version != 22 || c.record.State != Joining {
		t.Errorf("it writes %+v, want epoch 2 at version 22, joining", c.record)
	}
}

// TestWhatWasSaidOfAnotherEpoch checks that statements about an earlier epoch do not count. Their
// members may have left this one out since, and others may own its share.
func TestWhatWasSaidOfAnotherEpoch(t *testing.T) {
	t.Parallel()
	m := newJoined(t, "other")
	lost := m.buildDesiredRecord()
	lost.State, lost.Version = Lost, 21
	m.observeLeaseChange(9*time.Second, LeaseChange{Version: 21, Records: []Record{lost}})
	c, ok := find(turn(m, 9*time.Second), opWrite)
	if !ok || c.record.Epoch != 2 {
		t.Fatalf("it writes %+v, want the next epoch", c.record)
	}
	written := c.record
	written.Version = 22
	m.processCommandResult(9*time.Second, c, written, nil)
	m.observeLeaseChange(9*time.Second, LeaseChange{Version: 22, Records: []Record{written}})
	turn(m, 9*time.Second)
	if m.active {
		t.Error("it owns something again, and the other one has not counted it in again")
	}
	m.observeLeaseChange(9*time.Second, LeaseChange{Version: 23, Records: []Record{{
		Name: "other", Epoch: 1, State: Active, Includes: map[string]uint64{"self": 2}, Version: 23,
	}}})
	turn(m, 9*time.Second)
	if !m.active {
		t.Errorf("it is counted in, and owns nothing: %v", m.statusError(9*time.Second))
	}
}

// TestStoreRestored checks a restore from a backup. Later agreements are lost, so members must
// agree again.
func TestStoreRestored(t *testing.T) {
	t.Parallel()
	m := newJoined(t, "other")
	other := Record{Name: "other", Epoch: 1, State: Active, Version: 5}
	self := Record{Name: "self", Epoch: 1, State: Joining, Version: 6}
	m.observeLeaseChange(time.Second, LeaseChange{All: true, Version: 7, Records: []Record{other, self}})
	todo := turn(m, time.Second)
	if m.active {
		t.Error("it owns what the others do not know of")
	}
	if c, ok := find(todo, opWrite); !ok || c.record.Epoch != 2 || c.record.Version != 6 {
		t.Errorf("it writes %+v, want epoch 2 at version 6", c.record)
	}
}

// TestLeaverWaitsUntilOthersKnow, because a record that is gone without a word
// could be anybody's who comes back.
func TestLeaverWaitsUntilOthersKnow(t *testing.T) {
	t.Parallel()
	m := newJoined(t, "other")
	m.leaving = true
	c, ok := find(turn(m, time.Second), opWrite)
	if !ok || c.record.State != Left {
		t.Fatalf("it writes %+v, want that it has left", c.record)
	}
	written := c.record
	written.Version = 21
	m.processCommandResult(time.Second, c, written, nil)
	if _, ok := find(turn(m, time.Second), opRemove); ok {
		t.Error("it deletes its record before the other one knows")
	}
	m.observeLeaseChange(time.Second, LeaseChange{Version: 22, Records: []Record{{
		Name: "other", Epoch: 1, State: Active, Version: 22,
	}}})
	c, ok = find(turn(m, time.Second), opRemove)
	if !ok || c.record.Version != 21 {
		t.Fatalf("it does not delete its record, which the other one does not count in any more")
	}
	m.processCommandResult(time.Second, c, Record{}, nil)
	if !m.finished {
		t.Error("it is not done")
	}
}

// TestBuriesWhatItSaw, and not what has been written since.
func TestBuriesWhatItSaw(t *testing.T) {
	t.Parallel()
	m := newJoined(t, "other")
	m.renewed = 5 * time.Second
	if c, ok := find(turn(m, modelTiming.lease-1), opBury); ok {
		t.Fatalf("it writes %+v before a lease has passed", c.record)
	}
	c, ok := find(turn(m, modelTiming.lease), opBury)
	if !ok || c.record.Version != 1 || c.record.State != Lost || c.record.Epoch != 1 {
		t.Fatalf("it writes %+v, want epoch 1 to be lost, at version 1", c.record)
	}
	m.processCommandResult(modelTiming.lease, c, Record{}, ErrConflict)
	turn(m, modelTiming.lease)
	if _, counted := m.guard["other"]; !counted {
		t.Error("one that has written since is not counted in any more")
	}
}

// TestTies are two owners that want the same id as much.
func TestTies(t *testing.T) {
	t.Parallel()
	first, second := rendezvousShare{own: 7, after: []uint64{7}}, rendezvousShare{own: 7, before: []uint64{7}}
	for h := range uint64(100) {
		if first.containsHash(h) == second.containsHash(h) {
			t.Fatalf("%d is had by both, or by none", h)
		}
	}
}

func TestRecordName(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ group, identity, want string }{
		{"clusters", "sentinel-7c9f-x2x1", "clusters-sentinel-7c9f-x2x1-"},
		{"a b", "Me@Home.example", "a-b-me-home-example-"},
		{"--", "ü", ""},
	} {
		got := newRandomLeaseName(c.group, c.identity)
		if len(got) != len(c.want)+8 || got[:len(c.want)] != c.want {
			t.Errorf("newRecordName(%q, %q) = %q, want %s and 8 digits", c.group, c.identity, got, c.want)
		}
		if got == newRandomLeaseName(c.group, c.identity) {
			t.Errorf("two processes have the name %q", got)
		}
	}
}

func TestHoldingsAllocateNothing(t *testing.T) {
	begin := time.Now()
	h := newHoldings(func() time.Duration { return time.Since(begin) })
	h.setHoldingAndNotify(holding{share: newRendezvousShare("a", []string{"b", "c"}), until: time.Hour})
	id := []byte("01a1fa4c-b84e-72b4-8a15-00b90968348b")
	if n := testing.AllocsPerRun(100, func() { h.ownsHash(hashID(id)) }); n != 0 {
		t.Errorf("owns allocates %v times", n)
	}
}

// TestExpiredShareComesBack: a process that was stopped while its lease was written may find its
// share expired, and then gets it back. Whoever dropped resources meanwhile learns of that.
func TestExpiredShareComesBack(t *testing.T) {
	t.Parallel()
	now := 7 * time.Second
	h := newHoldings(func() time.Duration { return now })
	h.setHoldingAndNotify(holding{share: newRendezvousShare("a", nil), until: 8 * time.Second})
	changed := h.nextChange()
	h.extendUntil(8 * time.Second)
	select {
	case <-changed:
		t.Error("a share that has not expired has changed")
	default:
	}
	now = 9 * time.Second
	h.extendUntil(14 * time.Second)
	select {
	case <-changed:
	default:
		t.Error("the share came back unnoticed")
	}
}

// TestReadyByTheClock: a loop that is held up does not make a member ready
// whose time has run out.
func TestReadyByTheClock(t *testing.T) {
	t.Parallel()
	g := &Group{cfg: GroupConfig{Name: "fleet"}, holds: newHoldings(func() time.Duration { return time.Minute })}
	g.holds.setHoldingAndNotify(holding{share: newRendezvousShare("a", nil), until: time.Hour})
	if err := g.Ready(); err != nil {
		t.Errorf("Ready() = %v", err)
	}
	g.holds.extendUntil(time.Minute)
	if g.Ready() == nil {
		t.Error("it owns nothing and is ready")
	}
}
