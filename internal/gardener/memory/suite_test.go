package memory_test

import (
	"testing"

	"github.com/fleetloop/fleetloop/internal/gardener/gardentest"
	"github.com/fleetloop/fleetloop/internal/gardener/memory"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

func TestSuite(t *testing.T) {
	gardentest.RunSuite(t, func(*testing.T) *gardentest.Bed {
		g := memory.New(memory.Options{
			Project: "fundament", Installation: gardentest.Installation, Backlog: 50,
			Versions: []string{"1.34.1", "1.34.2", "1.34.3"}, MachineTypes: []string{"local"},
		})
		return &gardentest.Bed{
			Garden: g, Project: "fundament",
			Put: func(_ *testing.T, m shoot.Manifest) { g.ReplaceWithForeignShoot(m) },
			Edit: func(t *testing.T, name string, edit func(*shoot.Spec)) {
				t.Helper()
				if err := g.EditShootSpec(name, edit); err != nil {
					t.Fatal(err)
				}
			},
			Spec: func(t *testing.T, name string) shoot.Spec {
				t.Helper()
				s, ok := g.GetShootSpec(name)
				if !ok {
					t.Fatalf("there is no Shoot %q", name)
				}
				return s
			},
			Linger: func(_ *testing.T, name string, on bool) { g.SetDeletionBlocked(name, on) },
			Forgotten: func(*testing.T) string {
				for range 100 {
					g.ReplaceWithForeignShoot(gardentest.NewManifest("forget", 1))
				}
				return "1"
			},
		}
	})
}
