package simulation

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
	"github.com/fleetloop/fleetloop/internal/sentinel"
)

// Planted holds faults of the system under test, for tests of the checker. The zero value means
// none.
type Planted struct {
	// Skip is the index of a resource that no list ever contains; 0 means none.
	Skip int

	// Late is how long a commit stays hidden while later ones are visible.
	Late time.Duration

	// Publish replaces the publisher, which it may call.
	Publish func(ctx context.Context, e *cloudevent.Event, honest func(context.Context, *cloudevent.Event) error) error

	// Deaf hides changes of the division of resources from all sentinels.
	Deaf bool

	// Forgets makes each sentinel start anew that should continue from another.
	Forgets bool

	// Linger is how long the sentinel continues when it should have ended.
	Linger time.Duration
}

// A publisher is the model's publisher, or the planted one in its place.
type publisher struct {
	*Publisher
	planted *Planted
	share   *Share // nil if nothing is divided
	history *History
}

// Publish publishes an event, correctly or not.
func (p publisher) Publish(ctx context.Context, e *cloudevent.Event) error {
	if p.share != nil && !p.share.Holds(e.Subject) {
		p.history.RecordFault("%s is published about %s, which the sentinel does not hold", e.ID, e.Subject)
	}
	if p.planted.Publish != nil {
		return p.planted.Publish(ctx, e, p.Publisher.Publish)
	}
	return p.Publisher.Publish(ctx, e)
}

// A deaf share does not report changes.
type deaf struct{ *Share }

// Changed returns nil, which is never closed.
func (deaf) Changed() <-chan struct{} { return nil }

// A stage is a world in play.
type stage struct {
	World
	planted Planted
	history *History
	begin   time.Time
	fleet   *Fleet
	network *Network
	broker  *Broker

	// division is nil if only one sentinel runs.
	division *Division
}

// Simulate plays a world to its end. It returns its history and the promise that the history must meet.
// It must be called in a synctest bubble.
func Simulate(ctx context.Context, w World, planted Planted) (*History, Promise, error) {
	sel, err := w.Config.BuildLabelSelector()
	if err != nil {
		return nil, Promise{}, err
	}
	s := &stage{World: w, planted: planted, history: New(), begin: time.Now()}
	schedule := &Schedule{Begin: s.begin, Faults: w.Faults}
	dice := Dice(w.Seed)
	s.fleet = NewFleet(sel, s.history)
	s.fleet.Late = planted.Late
	s.network = NewNetwork()
	serving := ServerConfig{Features: w.Features, Latency: w.API, Schedule: schedule, Dice: dice}
	if planted.Skip > 0 {
		serving.Skip = w.IDs[planted.Skip]
	}
	server := NewServer(serving, s.fleet, s.history, s.network)
	adapters := &Adapters{Fleet: s.fleet, Dice: dice, Late: w.Late, Never: w.Never, Patience: 2 * w.Config.MaxAgeNotReady}
	s.broker = NewBroker(BrokerConfig{
		Latency: w.Broker, Schedule: schedule, Dice: dice, Deliver: adapters.ScheduleReport,
	}, s.history)

	promise := w.Promise(s.begin)
	end := w.Active + 2*promise.Wait + promise.Patience + promise.Ready
	promise.Until = s.begin.Add(end)
	ctx, cancel := context.WithDeadline(ctx, promise.Until)
	defer cancel()
	var parts sync.WaitGroup
	parts.Go(server.Serve)
	parts.Go(func() { server.RunFaults(ctx) })
	active, rest := context.WithDeadline(ctx, s.begin.Add(w.Active))
	defer rest()
	s.runOwners(active, &parts)
	err = s.runSentinels(ctx, active, &parts)
	adapters.Close()
	server.Close()
	_ = s.network.Close()
	parts.Wait()
	return s.history, promise, err
}

// runOwners runs the steps of the owners, and the jumps of the API's clock.
func (s *stage) runOwners(ctx context.Context, parts *sync.WaitGroup) {
	owners := &Owners{
		Fleet: s.fleet, Demote: s.Demote,
		In: map[string]string{region: "east"}, Out: map[string]string{region: "north"},
	}
	for _, step := range s.Steps {
		parts.Go(func() {
			if backoff.Sleep(ctx, step.After) == nil {
				owners.RunStep(ctx, step)
			}
		})
	}
	for _, j := range s.Clock {
		parts.Go(func() {
			if backoff.Sleep(ctx, j.After) == nil {
				s.fleet.SetClock(j.Offset)
				s.history.RecordStrike("clock", time.Now(), time.Now())
			}
		})
	}
}

// runSentinels runs all sentinels until ctx ends.
func (s *stage) runSentinels(ctx, active context.Context, parts *sync.WaitGroup) error {
	if len(s.Others) > 0 {
		s.division = NewDivision(s.IDs, s.history)
		for _, after := range s.Shuffles {
			parts.Go(func() {
				if backoff.Sleep(active, after) == nil {
					s.division.Shuffle()
				}
			})
		}
	}
	all := s.memberEnds()
	errs := make([]error, len(all))
	var running sync.WaitGroup
	for i, ends := range all {
		one := *s
		running.Go(func() { errs[i] = one.runLives(ctx, fmt.Sprint("sentinel-", i), ends) })
	}
	running.Wait()
	return errors.Join(errs...)
}

// missed is how long after a crash of a sentinel the others notice it.
const missed = 6 * time.Second

// runLives runs successive sentinels until ctx ends.
func (s *stage) runLives(ctx context.Context, name string, ends []End) error {
	var last *lived
	for _, e := range ends {
		if time.Since(s.begin) >= e.After {
			continue
		}
		it, err := s.runLife(ctx, s.begin.Add(e.After), e, s.joinDivision(name, last))
		if err != nil {
			return err
		}
		if e.Change != nil {
			s.Config, last = *e.Change, it
			continue
		}
		last = nil
		down := e.Down
		if e.Crash && s.division != nil {
			_ = backoff.Sleep(ctx, missed)
			s.division.Miss(it.share, it.life.Told)
			down = max(0, down-missed)
		}
		_ = backoff.Sleep(ctx, down) // active ends before ctx does
	}
	_, err := s.runLife(ctx, s.begin.Add(time.Hour), End{}, s.joinDivision(name, last))
	return err
}

// A lived is a sentinel that has run, with its share of the resources. Without a sentinel it is the
// start for a new one.
type lived struct {
	sentinel *sentinel.Sentinel
	life     *Life
	share    *Share
}

// joinDivision gives a sentinel a share of the resources, if they are divided and it has no share
// from its predecessor.
func (s *stage) joinDivision(name string, from *lived) *lived {
	if from != nil {
		return from
	}
	from = &lived{}
	if s.division != nil {
		from.share = s.division.Join(name)
	}
	return from
}

// runLife runs a sentinel until its planned end, or until ctx ends. It continues from another
// sentinel if there was one.
func (s *stage) runLife(ctx context.Context, until time.Time, end End, from *lived) (*lived, error) {
	life := s.history.RecordStart(from.life)
	defer s.history.RecordEnd(life)
	transport := &http.Transport{DialContext: s.network.Dial, DisableCompression: true, MaxIdleConnsPerHost: 16}
	defer transport.CloseIdleConnections()
	client, err := fleetclient.New(fleetclient.Config{
		Endpoint: "http://fleet.test", Timeout: s.Config.HyperfleetAPI.Timeout,
		WrapTransport: func(http.RoundTripper) http.RoundTripper { return transport },
	})
	if err != nil {
		return nil, err
	}
	line := s.broker.Connect(life.Number)
	deps := sentinel.Deps{
		API: client.Raw(), Publisher: publisher{line, &s.planted, from.share, s.history}, BrokerType: "nats", Predecessor: from.sentinel,
	}
	if from.share != nil {
		deps.Shard = from.share
	}
	if s.planted.Deaf {
		deps.Shard = deaf{from.share}
	}
	if s.planted.Forgets {
		deps.Predecessor = nil
	}
	it, err := sentinel.New(s.Config, deps)
	if err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	done := make(chan error, 1)
	go func() { done <- it.Run(running) }()
	s.watchUntil(ctx, it, until)

	if from.share != nil && !end.Crash && end.Change == nil && ctx.Err() == nil {
		s.division.Leave(from.share)
	}
	if end.Crash {
		line.Kill()
	}
	s.history.RecordStopRequest(life, end.Crash)
	stop()
	if err := <-done; err != nil {
		s.history.RecordFault("life %d ended with %v", life.Number, err)
	}
	_ = backoff.Sleep(context.WithoutCancel(ctx), s.planted.Linger)
	if most := line.Most(); most > s.Config.Publish.Window {
		s.history.RecordFault("%d events in flight, with a window of %d", most, s.Config.Publish.Window)
	}
	return &lived{it, life, from.share}, nil
}

// watchUntil waits until a time or the end of ctx, and regularly checks whether the sentinel reports
// that it is live.
func (s *stage) watchUntil(ctx context.Context, it *sentinel.Sentinel, until time.Time) {
	const every = 10 * time.Second
	for {
		err := backoff.Sleep(ctx, min(every, time.Until(until)))
		if live := it.Live(); live != nil {
			s.history.RecordFault("it says that it does not live: %v", live)
		}
		if err != nil || !time.Now().Before(until) {
			return
		}
	}
}

// Report returns a report about broken promises: the first breach and the events before it, the
// world, and how to play it again.
func Report(w World, h *History, breaches []Breach) string {
	b := breaches[0]
	return fmt.Sprintf("%d breaches; the first, about %q at %.3fs: %s\n%s\n\nthe world of seed %d:\n%splay it again: SEED=%d go test ./devstack/simulation -run TestSimulation",
		len(breaches), b.Resource, b.At.Sub(h.Begin()).Seconds(), b.What, h.Tail(b.Resource, b.At, 60), w.Seed, w.String(), w.Seed)
}
