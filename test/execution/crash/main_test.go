// Package crash kills the execution controller at each of its writes: once before the API
// server receives the write, and once before the controller receives the response. The next
// controller has to continue, even if the execution was deleted in the meantime. Writes of an
// inline action to its target are included.
package crash

import (
	"os"
	"testing"

	"github.com/fleetloop/fleetloop/test/execution/fleettest"
)

func TestMain(m *testing.M) {
	if code, played := fleettest.RunFakeImage(os.Args); played {
		os.Exit(code) // this process is a program of a Pod
	}
	fleettest.Main(m, fleettest.ProcessNode)
}
