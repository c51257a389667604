package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/fleetloop/fleetloop/internal/postgres/pgserver"
)

// restoreCommands are the commands of docs/how-to/back-up-and-restore.md, for the database of the proof.
type restoreCommands struct{ backUp, restore, migrate, overwrite string }

// readRestoreCommands reads the commands from the documentation of a release.
func readRestoreCommands(source string) (c restoreCommands, err error) {
	text, err := os.ReadFile(filepath.Join(source, "docs", "how-to", "back-up-and-restore.md")) //nolint:gosec // our own documentation
	if err != nil {
		return c, err
	}
	blocks := regexp.MustCompile("(?ms)<!-- run: drill -->\n *```sh\n(.*?)^ *```$").FindAllStringSubmatch(string(text), -1)
	steps := []struct {
		mention string
		command *string
	}{{"pg_dump", &c.backUp}, {"pg_restore", &c.restore}, {"fleet-api migrate", &c.migrate}, {"overwrite_shoot", &c.overwrite}}
	if len(blocks) != len(steps) {
		return c, fmt.Errorf("the documentation of the restore has %d blocks of commands, want %d", len(blocks), len(steps))
	}
	names := strings.NewReplacer(
		"database fleet rename to fleet_before_restore",
		"database "+pgserver.DefaultDatabase+" rename to "+pgserver.DefaultDatabase+"_before_restore",
		"create database fleet owner fleet",
		"create database "+pgserver.DefaultDatabase+" owner "+pgserver.SuperUser,
	)
	for i, step := range steps {
		if !strings.Contains(blocks[i][1], step.mention) {
			return c, fmt.Errorf("block %d of the documentation of the restore does not mention %q: %s", i, step.mention, blocks[i][1])
		}
		*step.command = names.Replace(blocks[i][1])
	}
	if !strings.Contains(c.restore, pgserver.DefaultDatabase) || !strings.Contains(c.overwrite, oneCluster) {
		return c, fmt.Errorf("the documentation of the restore has other names: %s", c.restore+c.overwrite)
	}
	return c, nil
}

// oneCluster selects the cluster in the documentation.
const oneCluster = "where name = 'eu-2'"

// overwriteClusters returns the command that has the Shoots of some clusters replaced.
func (c restoreCommands) overwriteClusters(ids []string) string {
	return strings.Replace(c.overwrite, oneCluster, "where id in ('"+strings.Join(ids, "', '")+"')", 1)
}
