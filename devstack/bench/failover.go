package main

import (
	"context"
	"errors"
	"io"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/internal/sentinel/shard"
)

// failoverBench measures how long the share of a killed replica has no owner, on a real API server.
// It reports the longest of several times.
func failoverBench() bench {
	const name = "operator.failover_s"
	return bench{names: []string{name}, run: func(ctx context.Context, progress io.Writer) ([]line, error) {
		took, err := measureKubeLeaseFailover(ctx, progress)
		return []line{{kind: "value", name: name, value: took.Seconds(), unit: "s", op: "<=", want: 15}}, err
	}}
}

func measureKubeLeaseFailover(ctx context.Context, progress io.Writer) (longest time.Duration, err error) {
	bed, err := kubebed.Start(ctx, kubebed.Options{})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, bed.Stop()) }()
	return measureFailovers(ctx, progress, func(group string) (shard.LeaseStore, func(), error) {
		l, err := shard.NewKubeLeases(bed.Config(), metav1.NamespaceDefault, group)
		if err != nil {
			return nil, nil, err
		}
		return l, l.Close, nil
	})
}
