package clusterworker

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// An endlessStore always has rows to claim, until a number of them is done.
type endlessStore struct {
	mu        sync.Mutex
	want, got int
	next      int64
	requests  int
	done      chan struct{}
}

func (s *endlessStore) ClaimRows(_ context.Context, _ string, limits ClaimLimits, lease time.Duration) (claims []Claim, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	list := make([]Claim, 0, limits.Slots)
	for range limits.Slots {
		s.next++
		list = append(list, Claim{
			ClusterID: fmt.Sprint("c", s.next%100_000), Token: s.next, Until: time.Now().Add(lease), Generation: 1,
			ShootName: "shoot", ShootUID: "uid", ReportedShootUID: "uid", UnsyncedSince: time.Now(),
		})
	}
	return list, nil
}

func (*endlessStore) StoreNames(context.Context, []ProposedName) (taken, skipped []ProposedName, err error) {
	return nil, nil, nil
}

func (s *endlessStore) WriteResults(_ context.Context, results []Result) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	before := s.got
	if s.got += len(results); before < s.want && s.got >= s.want {
		close(s.done)
	}
	return nil, nil
}

func (*endlessStore) RecordCreation(context.Context, Claim, Change) (bool, error) { return true, nil }

func (*endlessStore) ReleaseClaims(context.Context, []Claim) error { return nil }

func (*endlessStore) RenewLeases(context.Context, []Claim, time.Duration) ([]string, error) {
	return nil, nil
}

func (*endlessStore) FindNextLeaseEndOfOthers(context.Context, string) (time.Duration, bool, error) {
	return 0, false, nil
}

// An easyGarden accepts every call at once.
type easyGarden struct{}

func (easyGarden) ApplyShoot(context.Context, shoot.Manifest, bool) (shoot.Applied, error) {
	return shoot.Applied{UID: "uid", Changed: true}, nil
}

func (easyGarden) DeleteShoot(context.Context, shoot.Ref) (shoot.Deletion, error) {
	return shoot.Deletion{}, nil
}

func (easyGarden) GetShoot(context.Context, string) (shoot.Observed, error) {
	return shoot.Observed{}, shoot.ErrNotFound
}

func (easyGarden) Probe(context.Context) error { return nil }

// BenchmarkWorker measures the cost of the loop per row, with a database and a Gardener
// that take no time.
func BenchmarkWorker(b *testing.B) {
	for _, slots := range []int{32, 256} {
		b.Run(fmt.Sprint(slots, "Slots"), func(b *testing.B) {
			b.ReportAllocs()
			s := &endlessStore{want: b.N, done: make(chan struct{})}
			w, err := New(Config{Slots: slots}, Deps{
				Store: s, Garden: easyGarden{}, Maker: &fakeMaker{}, Owner: "o",
				Installation: "inst",
			})
			if err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(b.Context())
			ended := make(chan error)
			go func() { ended <- w.Run(ctx) }()
			<-s.done
			b.StopTimer()
			cancel()
			if err := <-ended; err != nil {
				b.Error(err)
			}
			b.ReportMetric(float64(s.got)/float64(s.requests), "rows/request")
		})
	}
}
