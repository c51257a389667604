package nats_test

import (
	"testing"

	"github.com/fleetloop/fleetloop/devstack/brokerbench"
)

func BenchmarkPublish(b *testing.B) {
	bed, err := brokerbench.OpenNATS(b.Context(), b.TempDir())
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
