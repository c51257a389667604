package audit_test

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution/audit"
)

// BenchmarkAppend appends all records of executions, so many executions in a
// call.
func BenchmarkAppend(b *testing.B) {
	for _, executions := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprintf("executions=%d", executions), func(b *testing.B) {
			bed := newStoreBed(b)
			n, written := 0, 0
			for b.Loop() {
				var all []audit.Record
				for range executions {
					n++
					all = append(all, newRecords(fmt.Sprintf("ke-%d", n))...)
				}
				bed.append(all...)
				written += len(all)
			}
			b.ReportMetric(float64(written)/b.Elapsed().Seconds(), "records/s")
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "executions/s")
		})
	}
}

// BenchmarkAppendAgain appends records that are stored already, as after a restart.
func BenchmarkAppendAgain(b *testing.B) {
	bed := newStoreBed(b)
	all := newRecords("one")
	bed.append(all...)
	for b.Loop() {
		bed.append(all...)
	}
}

// BenchmarkSync is what an operator with many workers gets through.
func BenchmarkSync(b *testing.B) {
	for _, workers := range []int{1, 16} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			bed := newStoreBed(b)
			a, err := audit.New(bed.store, audit.Config{Cluster: "local"}, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
			if err != nil {
				b.Fatal(err)
			}
			var n atomic.Int64
			b.SetParallelism(max(1, workers/2))
			sync := func() {
				ke := newRequest(fmt.Sprintf("uid-%d", n.Add(1)), "scale_deployment", `{"replicas":5}`, "alice")
				ke.Status.PhaseTransitions = append(ke.Status.PhaseTransitions, v1alpha1.PhaseTransition{Phase: v1alpha1.PhaseExecuting})
				ke.Name = string(ke.UID)
				if _, err := a.Sync(b.Context(), ke); err != nil {
					b.Error(err)
				}
			}
			if workers == 1 {
				for b.Loop() {
					sync()
				}
			} else {
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						sync()
					}
				})
			}
			b.ReportMetric(float64(n.Load())/b.Elapsed().Seconds(), "executions/s")
		})
	}
}

// BenchmarkVerify goes through a chain.
func BenchmarkVerify(b *testing.B) {
	bed := newStoreBed(b)
	const executions = 5000
	for i := range executions / 100 {
		var all []audit.Record
		for j := range 100 {
			all = append(all, newRecords(fmt.Sprintf("ke-%d-%d", i, j))...)
		}
		bed.append(all...)
	}
	for b.Loop() {
		bed.verify()
	}
	b.ReportMetric(6*executions*float64(b.N)/b.Elapsed().Seconds(), "events/s")
}
