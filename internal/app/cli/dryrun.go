package cli

import (
	"errors"

	"github.com/spf13/cobra"

	fleetclient "github.com/fleetloop/fleetloop/client"
)

// A dryRun is the value of the flag --dry-run.
type dryRun bool

// The values of --dry-run. Kubernetes has a third, client, which validates nothing.
const (
	dryRunServer = "server"
	dryRunNone   = "none"
)

// addFlag adds --dry-run. Without a value it means server.
func (d *dryRun) addFlag(cmd *cobra.Command) {
	AddDryRunFlag(cmd, (*bool)(d), "validate on the server and print the result, but change nothing")
}

// AddDryRunFlag adds --dry-run, which all commands have with the same values.
func AddDryRunFlag(cmd *cobra.Command, dry *bool, usage string) {
	f := cmd.Flags().VarPF((*dryRun)(dry), "dry-run", "", usage+": `server|none`")
	f.NoOptDefVal = dryRunServer
	_ = cmd.RegisterFlagCompletionFunc(
		"dry-run",
		cobra.FixedCompletions([]string{dryRunServer, dryRunNone}, cobra.ShellCompDirectiveNoFileComp),
	)
}

// String returns the value of the flag.
func (d *dryRun) String() string {
	if *d {
		return dryRunServer
	}
	return dryRunNone
}

// Set reads the value of the flag.
func (d *dryRun) Set(text string) error {
	if text != dryRunServer && text != dryRunNone {
		return errors.New("use server or none")
	}
	*d = text == dryRunServer
	return nil
}

// Type returns the type for the help of commands.
func (d *dryRun) Type() string { return "string" }

// collection returns the client of a collection for changes.
func (d *dryRun) collection(client *fleetclient.Client, name string) *fleetclient.Collection {
	if *d {
		return client.Collection(name).DryRun()
	}
	return client.Collection(name)
}

// describe returns a text about a change, marked if the change was not made.
func (d *dryRun) describe(done string) string {
	if *d {
		return done + " (server dry run)"
	}
	return done
}
