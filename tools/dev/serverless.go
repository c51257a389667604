package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
)

// starterPackages returns the packages whose import means that a server is started.
func starterPackages() []string {
	return []string{
		"github.com/fleetloop/fleetloop/internal/postgres/pgtest",
		"github.com/fleetloop/fleetloop/internal/postgres/pgserver",
		"github.com/fleetloop/fleetloop/internal/broker/brokertest/rabbitmq",
		"github.com/fleetloop/fleetloop/devstack/kubebed",
	}
}

type listedPackage struct {
	ImportPath   string
	ForTest      string
	Deps         []string
	TestGoFiles  []string
	XTestGoFiles []string
	Module       *struct{ Main bool }
}

// runServerless lists the packages whose tests start no server.
//
// It omits packages whose tests use one of the helpers that start PostgreSQL, RabbitMQ or a
// Kubernetes control plane, so that the fast checks need only Go. `make test` runs every package.
func runServerless(ctx context.Context, patterns []string, out io.Writer) error {
	// With -test the list contains, per package, a synthetic "pkg.test" whose Deps are all
	// dependencies of its tests.
	args := append([]string{"list", "-test", "-json=ImportPath,ForTest,Deps,TestGoFiles,XTestGoFiles,Module"}, patterns...)
	raw, err := exec.CommandContext(ctx, "go", args...).Output() //nolint:gosec // runs the go command on the packages it is given
	if err != nil {
		return fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}

	dec := json.NewDecoder(bytes.NewReader(raw))
	for {
		var p listedPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("decode go list: %w", err)
		}
		path, isTest := strings.CutSuffix(p.ImportPath, ".test")
		if !isTest || startsServer(p.Deps) {
			continue
		}
		if _, err := fmt.Fprintln(out, path); err != nil {
			return err
		}
	}
}

// startsServer reports whether deps contains a starter. It may contain test variants as "pkg
// [pkg.test]".
func startsServer(deps []string) bool {
	return slices.ContainsFunc(deps, func(d string) bool {
		name, _, _ := strings.Cut(d, " ")
		return slices.Contains(starterPackages(), name)
	})
}
