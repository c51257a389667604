package gardener_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/gardener"
	"github.com/fleetloop/fleetloop/internal/gardener/gardentest"
)

// BenchmarkApply measures applies of sixteen concurrent callers to a real Gardener: new
// Shoots, and the same ones again with a change.
func BenchmarkApply(b *testing.B) {
	bed := kubebedtest.Garden(b)
	for _, seen := range []bool{false, true} {
		b.Run(fmt.Sprintf("seen=%t", seen), func(b *testing.B) {
			_, ns := kubebedtest.NewGardenProject(b)
			c, err := gardener.NewForConfig(bed.Config(), gardener.Config{Namespace: ns, QPS: 1e6, Burst: 1e6}, gardentest.Installation)
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			apply := func(n, generation int64, seen bool) {
				m := gardentest.NewManifest(fmt.Sprintf("s%05d", n), generation)
				m.Spec.Provider.Workers[0].Maximum = int32(generation) + 3
				if _, err := c.ApplyShoot(b.Context(), m, seen); err != nil {
					b.Error(err)
				}
			}
			if seen {
				for n := range int64(b.N) {
					apply(n, 1, false)
				}
			}
			var next atomic.Int64
			b.SetParallelism(8) // on two cores
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					apply(next.Add(1)-1, 2, seen)
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "shoots/s")
		})
	}
}
