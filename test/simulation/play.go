package simulation

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
	"github.com/fleetloop/fleetloop/internal/fleetclient"
	"github.com/fleetloop/fleetloop/internal/sentinel"
	"github.com/fleetloop/fleetloop/test/simulation/history"
	"github.com/fleetloop/fleetloop/test/simulation/model"
)

// Planted are faults of the system under test, for tests of the checker. The
// zero value is none.
type Planted struct {
	// Skip is the index of a resource that no list ever shows; 0 is none.
	Skip int

	// Late is how long a commit stays hidden while later ones show.
	Late time.Duration

	// Publish stands in the publisher's place, which it may use.
	Publish func(ctx context.Context, e *cloudevent.Event, honest func(context.Context, *cloudevent.Event) error) error

	// Forgets has each sentinel begin anew that should go on from another.
	Forgets bool

	// Linger is how long the sentinel goes on when it should have ended.
	Linger time.Duration
}

// A publisher is the model's, or what was planted in its place.
type publisher struct {
	*model.Publisher
	planted *Planted
}

// Publish publishes an event, honestly or not.
func (p publisher) Publish(ctx context.Context, e *cloudevent.Event) error {
	if p.planted.Publish != nil {
		return p.planted.Publish(ctx, e, p.Publisher.Publish)
	}
	return p.Publisher.Publish(ctx, e)
}

// A stage is a world that is being played.
type stage struct {
	World
	planted Planted
	history *history.History
	begin   time.Time
	fleet   *model.Fleet
	network *model.Network
	broker  *model.Broker
}

// Play plays a world to its end and returns its history, with the promise that
// it is to be held against. It must be called in a synctest bubble.
func Play(ctx context.Context, w World, planted Planted) (*history.History, history.Promise, error) {
	sel, err := w.Config.Selector()
	if err != nil {
		return nil, history.Promise{}, err
	}
	s := &stage{World: w, planted: planted, history: history.New(), begin: time.Now()}
	schedule := &model.Schedule{Begin: s.begin, Faults: w.Faults}
	dice := model.Dice(w.Seed)
	s.fleet = model.NewFleet(sel, s.history)
	s.fleet.Late = planted.Late
	s.network = model.NewNetwork()
	serving := model.ServerConfig{Features: w.Features, Latency: w.API, Schedule: schedule, Dice: dice}
	if planted.Skip > 0 {
		serving.Skip = w.IDs[planted.Skip]
	}
	server := model.NewServer(serving, s.fleet, s.history, s.network)
	adapters := &model.Adapters{Fleet: s.fleet, Dice: dice, Late: w.Late, Never: w.Never, Patience: 2 * w.Config.MaxAgeNotReady}
	s.broker = model.NewBroker(model.BrokerConfig{
		Latency: w.Broker, Schedule: schedule, Dice: dice, Deliver: adapters.Deliver,
	}, s.history)

	promise := w.Promise(s.begin)
	end := w.Active + 2*promise.Wait + promise.Patience + promise.Ready
	promise.Until = s.begin.Add(end)
	ctx, cancel := context.WithDeadline(ctx, promise.Until)
	defer cancel()
	var parts sync.WaitGroup
	parts.Go(server.Serve)
	parts.Go(func() { server.Play(ctx) })
	active, rest := context.WithDeadline(ctx, s.begin.Add(w.Active))
	defer rest()
	s.owners(active, &parts)
	err = s.lives(ctx)
	adapters.Close()
	server.Close()
	_ = s.network.Close()
	parts.Wait()
	return s.history, promise, err
}

// owners do their steps, and the API's clock jumps.
func (s *stage) owners(ctx context.Context, parts *sync.WaitGroup) {
	owners := &model.Owners{
		Fleet: s.fleet, Demote: s.Demote,
		In: map[string]string{region: "east"}, Out: map[string]string{region: "north"},
	}
	for _, step := range s.Steps {
		parts.Go(func() {
			if backoff.Sleep(ctx, step.After) == nil {
				owners.Do(ctx, step)
			}
		})
	}
	for _, j := range s.Clock {
		parts.Go(func() {
			if backoff.Sleep(ctx, j.After) == nil {
				s.fleet.SetClock(j.Offset)
				s.history.Strike("clock", time.Now(), time.Now())
			}
		})
	}
}

// lives runs one sentinel after another until ctx ends.
func (s *stage) lives(ctx context.Context) error {
	var last *lived
	for _, e := range s.Ends {
		if time.Since(s.begin) >= e.After {
			continue
		}
		it, err := s.life(ctx, s.begin.Add(e.After), e.Crash, last)
		if err != nil {
			return err
		}
		if last = nil; e.Change != nil {
			s.Config, last = *e.Change, it
			continue
		}
		_ = backoff.Sleep(ctx, e.Down) // active is over before ctx is
	}
	_, err := s.life(ctx, s.begin.Add(time.Hour), false, last)
	return err
}

// A lived is a sentinel that has run.
type lived struct {
	sentinel *sentinel.Sentinel
	life     *history.Life
}

// life runs a sentinel until it is to stop, or to die, or ctx ends. It goes on
// from another if there is one.
func (s *stage) life(ctx context.Context, until time.Time, crash bool, from *lived) (*lived, error) {
	var before lived
	if from != nil {
		before = *from
	}
	life := s.history.Start(before.life)
	defer s.history.End(life)
	transport := &http.Transport{DialContext: s.network.Dial, DisableCompression: true, MaxIdleConnsPerHost: 16}
	defer transport.CloseIdleConnections()
	client, err := fleetclient.New(
		fleetclient.Config{Endpoint: "http://fleet.test", Timeout: s.Config.HyperfleetAPI.Timeout},
		fleetclient.Deps{Wrap: func(http.RoundTripper) http.RoundTripper { return transport }})
	if err != nil {
		return nil, err
	}
	line := s.broker.Connect(life.Number)
	deps := sentinel.Deps{API: client, Publisher: publisher{line, &s.planted}, BrokerType: "nats", Predecessor: before.sentinel}
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
	s.attend(ctx, it, until)

	if crash {
		line.Kill()
	}
	s.history.Tell(life, crash)
	stop()
	if err := <-done; err != nil {
		s.history.Fault("life %d ended with %v", life.Number, err)
	}
	_ = backoff.Sleep(context.WithoutCancel(ctx), s.planted.Linger)
	if most := line.Most(); most > s.Config.Publish.Window {
		s.history.Fault("%d events in flight, with a window of %d", most, s.Config.Publish.Window)
	}
	return &lived{it, life}, nil
}

// attend waits until a time or the end of ctx, and asks now and then whether
// the sentinel says that it lives.
func (s *stage) attend(ctx context.Context, it *sentinel.Sentinel, until time.Time) {
	const every = 10 * time.Second
	for {
		err := backoff.Sleep(ctx, min(every, time.Until(until)))
		if live := it.Live(); live != nil {
			s.history.Fault("it says that it does not live: %v", live)
		}
		if err != nil || !time.Now().Before(until) {
			return
		}
	}
}

// Report is what there is to read when promises were not kept: the first breach
// and what led to it, the world, and how to play it again.
func Report(w World, h *history.History, breaches []history.Breach) string {
	b := breaches[0]
	return fmt.Sprintf("%d breaches; the first, about %q at %.3fs: %s\n%s\n\nthe world of seed %d:\n%splay it again: SEED=%d go test ./test/simulation -run TestSimulation",
		len(breaches), b.Resource, b.At.Sub(h.Begin()).Seconds(), b.What, h.Tail(b.Resource, b.At, 60), w.Seed, w.String(), w.Seed)
}
