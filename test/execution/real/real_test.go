// Package realexecution runs the tests of executions on a real node. The runner is a container
// from its shipped image, as in any cluster.
package realexecution

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"github.com/fleetloop/fleetloop/devstack/realnode"
	"github.com/fleetloop/fleetloop/test/execution/fleettest"
)

// impossible is why there is no node here.
var impossible error

// All of this program's tests run in namespaces, in a process of their own.
func TestMain(m *testing.M) {
	if realnode.Off() {
		os.Exit(m.Run()) // the tests say that they are off
	}
	if impossible = realnode.CheckRequirements(); impossible != nil {
		os.Exit(m.Run()) // the tests fail with what is missing
	}
	inside, code, err := realnode.Isolate(context.Background(), slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1) // there is no test to fail
	}
	if !inside {
		os.Exit(code) // the tests have run
	}
	fleettest.Main(m, fleettest.RealNode)
}

func TestCore(t *testing.T) {
	if realnode.Off() {
		t.Skip("NODE=off: nothing is tested on a real node")
	}
	if impossible != nil {
		t.Fatalf("%v; NODE=off leaves these tests out", impossible)
	}
	fleettest.RunCoreTests(t)
}
