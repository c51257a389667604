package amqp_test

import (
	"testing"

	"github.com/fleetloop/fleetloop/internal/broker/amqp/amqpbench"
	"github.com/fleetloop/fleetloop/internal/broker/brokertest/bench"
)

func BenchmarkPublish(b *testing.B) {
	bed, err := amqpbench.Open(b.Context(), amqpbench.QueueType)
	if err != nil {
		b.Fatal(err)
	}
	defer bed.Close()
	for name, side := range map[string]bench.Side{"Ours": bed.Ours(), "Raw": bed.Raw} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			if err := side(b.Context(), b.N, bench.Window); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
			if err := bed.Empty(b.Context()); err != nil {
				b.Fatal(err)
			}
		})
	}
}
