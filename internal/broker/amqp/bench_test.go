package amqp_test

import (
	"testing"

	"github.com/fleetloop/fleetloop/devstack/brokerbench"
)

func BenchmarkPublish(b *testing.B) {
	bed, err := brokerbench.OpenRabbitMQ(b.Context(), brokerbench.RabbitMQQueueType)
	if err != nil {
		b.Fatal(err)
	}
	defer bed.Close()
	for name, side := range map[string]brokerbench.Side{"Ours": bed.Ours(), "Raw": bed.PublishRaw} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			if err := side(b.Context(), b.N, brokerbench.Window); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
			if err := bed.Empty(b.Context()); err != nil {
				b.Fatal(err)
			}
		})
	}
}
