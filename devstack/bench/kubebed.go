package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/fleetloop/fleetloop/devstack/kubebed"
)

const kubebedRounds = 5

// kubebedBenches returns the benches of the control plane for tests. The build of its programs
// takes minutes on all processors, and therefore runs only with COLD=1.
func kubebedBenches() []bench {
	list := []bench{kubebedStartBench()}
	if os.Getenv("COLD") == "1" {
		list = append(list, kubebedColdBuildBench())
	}
	return list
}

// kubebedStartBench measures the time until the API server of a test's control plane responds, with
// existing programs.
func kubebedStartBench() bench {
	const name = "kubebed.start_s"
	return bench{names: []string{name}, run: func(ctx context.Context, progress io.Writer) ([]line, error) {
		seconds, err := measureKubebedStart(ctx, progress)
		return []line{{kind: "value", name: name, value: seconds, unit: "s", op: "<=", want: 8}}, err
	}}
}

func measureKubebedStart(ctx context.Context, progress io.Writer) (seconds float64, err error) {
	log := slog.New(slog.NewTextHandler(progress, nil))
	assets, err := kubebed.EnsureAssets(ctx, log) // this may take minutes and is not measured
	if err != nil {
		return 0, err
	}
	var took []float64
	for range kubebedRounds {
		began := time.Now()
		bed, err := kubebed.Start(ctx, kubebed.Options{Assets: assets})
		if err != nil {
			return 0, err
		}
		took = append(took, time.Since(began).Seconds())
		if err := bed.Stop(); err != nil {
			return 0, err
		}
	}
	_, _ = fmt.Fprintf(progress, "a control plane answers after %.2f s\n", took)
	return computeMedian(took), nil
}

// kubebedColdBuildBench measures the time to build the programs of a control plane with only the Go
// toolchain.
func kubebedColdBuildBench() bench {
	const name = "kubebed.cold_build_min"
	return bench{names: []string{name}, run: func(ctx context.Context, progress io.Writer) ([]line, error) {
		minutes, err := measureAssetBuild(ctx, progress)
		return []line{{kind: "value", name: name, value: minutes, unit: "min", op: "<=", want: 12}}, err
	}}
}

func measureAssetBuild(ctx context.Context, progress io.Writer) (minutes float64, err error) {
	dir, err := os.MkdirTemp("", "fleetloop-bench-")
	if err != nil {
		return 0, err
	}
	// The go command makes the files of modules read-only.
	remove := exec.CommandContext(context.WithoutCancel(ctx), "chmod", "-R", "u+w", dir) //nolint:gosec // our own folder
	defer func() { err = errors.Join(err, remove.Run(), os.RemoveAll(dir)) }()
	program := filepath.Join(dir, "kubebed")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "./devstack/cmd/kubebed") //nolint:gosec // our own program
	build.Stderr = progress
	if err := build.Run(); err != nil {
		return 0, fmt.Errorf("build devstack/cmd/kubebed: %w", err)
	}
	fill := exec.CommandContext(ctx, program, "assets") //nolint:gosec // what was just built
	fill.Stderr = progress
	fill.Env = append(
		os.Environ(),
		kubebed.AssetsVariable+"=",
		kubebed.CacheVariable+"="+dir,
		kubebed.SourceVariable+"=build",
		kubebed.KeepVariable+"=",
		"GOMODCACHE="+filepath.Join(dir, "modules"),
	) // includes downloads
	began := time.Now()
	if err := fill.Run(); err != nil {
		return 0, fmt.Errorf("build the programs of Kubernetes: %w", err)
	}
	return time.Since(began).Minutes(), nil
}
