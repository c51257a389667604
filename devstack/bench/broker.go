package main

import (
	"context"
	"fmt"
	"io"
	"os"
)

// amqpBench measures publishing to RabbitMQ.
func amqpBench() bench {
	return bench{
		names: []string{"broker.amqp_vs_raw", "broker.amqp_vs_one_at_a_time"},
		run: func(ctx context.Context, progress io.Writer) ([]line, error) {
			results, err := benchmarkRabbitMQPublish(ctx, io.Discard)
			return printAndConvertToLines(progress, results), err
		},
	}
}

// natsBench measures publishing to an embedded NATS JetStream.
func natsBench() bench {
	return bench{names: []string{"broker.nats_vs_raw"}, run: func(ctx context.Context, progress io.Writer) ([]line, error) {
		dir, err := os.MkdirTemp("", "fleetloop-bench-")
		if err != nil {
			return nil, err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		results, err := benchmarkNATSPublish(ctx, dir, io.Discard)
		return printAndConvertToLines(progress, results), err
	}}
}

// printAndConvertToLines returns the results as lines, and prints the rates of both sides.
func printAndConvertToLines(progress io.Writer, results []publishResult) []line {
	var out []line
	for _, r := range results {
		_, _ = fmt.Fprintf(progress, "%s: %s\n", r.Name, r.Detail)
		out = append(out, line{kind: "ratio", name: r.Name, value: r.Value, op: ">=", want: r.Want})
	}
	return out
}
