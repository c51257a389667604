package execution

import (
	"testing"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/test/execution/fleettest"
)

func TestScale(t *testing.T) {
	f := fleettest.Start(t, fleettest.Options{})
	f.Deployment(f.Cheap, "web", 3)
	a := f.Does(fleettest.Requester, cli.CodeOK, fleettest.Scale(f.Cheap, "web", 5, "--name=s1", "--wait"))
	t.Log(a.Out, a.Err)
	f.Reaches("s1", v1alpha1.PhaseRollbackReady)
	f.WantReplicas(f.Cheap, "web", 5)
	t.Log(f.Run(fleettest.Requester, "exec", "describe", "s1").Out)
}
