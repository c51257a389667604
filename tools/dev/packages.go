package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
)

// listPackagesThatStartServers returns the packages whose import means that a server is started. The package of a test is
// one of its imports.
func listPackagesThatStartServers() []string {
	return []string{
		"github.com/fleetloop/fleetloop/internal/postgres/pgtest",
		"github.com/fleetloop/fleetloop/internal/postgres/pgserver",
		"github.com/fleetloop/fleetloop/internal/broker/brokertest/rabbitmq",
		"github.com/fleetloop/fleetloop/devstack/kubebed",
		"github.com/fleetloop/fleetloop/test/upgrade_test", // starts them by the program of the proof
	}
}

// builderPackage builds binaries, so that a test which imports it starts programs.
const builderPackage = "github.com/fleetloop/fleetloop/devstack/binaries"

type listedPackage struct {
	ImportPath   string
	ForTest      string
	Deps         []string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

// printPackagesOfTestGroups lists the packages whose tests belong to one of the groups in the first argument,
// separated by commas:
//
//   - pure: the tests start neither servers nor other programs. The go command may repeat their
//     results, because it sees everything that they read.
//   - programs: the tests start programs, such as the go command, but no servers.
//   - servers: the tests use a helper that starts PostgreSQL, RabbitMQ or a Kubernetes control plane.
//
// The fast checks run the first two, so that they need only Go. `make test` runs all.
func printPackagesOfTestGroups(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("packages", flag.ContinueOnError)
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("read the flags: %w", err)
	}
	groups := strings.Split(flags.Arg(0), ",")
	for _, group := range groups {
		if !slices.Contains([]string{"pure", "programs", "servers"}, group) {
			return fmt.Errorf("group %q: want pure, programs or servers", group)
		}
	}
	// With -test the list contains, per package, a synthetic "pkg.test" whose Deps are all
	// dependencies of its tests.
	command := append([]string{"list", "-test", "-json=ImportPath,ForTest,Deps,Imports,TestImports,XTestImports"}, flags.Args()[1:]...)
	raw, err := exec.CommandContext(ctx, "go", command...).Output() //nolint:gosec // runs the go command on the packages it is given
	if err != nil {
		return fmt.Errorf("go %s: %w", strings.Join(command, " "), err)
	}

	startsPrograms := map[string]bool{} // by import path
	dec := json.NewDecoder(bytes.NewReader(raw))
	for {
		var p listedPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("decode go list: %w", err)
		}
		path, isTest := strings.CutSuffix(p.ImportPath, ".test")
		if !isTest {
			imports := slices.Concat(p.Imports, p.TestImports, p.XTestImports)
			startsPrograms[path] = slices.Contains(imports, "os/exec") || slices.Contains(imports, builderPackage)
			continue
		}
		group := "pure"
		switch {
		case importsServerStarter(p.Deps):
			group = "servers"
		case startsPrograms[path]:
			group = "programs"
		}
		if !slices.Contains(groups, group) {
			continue
		}
		if _, err := fmt.Fprintln(out, path); err != nil {
			return err
		}
	}
}

// importsServerStarter reports whether deps contains a starter. It may contain test variants as "pkg
// [pkg.test]".
func importsServerStarter(deps []string) bool {
	return slices.ContainsFunc(deps, func(d string) bool {
		name, _, _ := strings.Cut(d, " ")
		return slices.Contains(listPackagesThatStartServers(), name)
	})
}
