package cli

import (
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	fleetclient "github.com/fleetloop/fleetloop/client"
)

// The flags that name the person, as kubectl has them. A configuration file cannot set them, because it must not change
// who acts.
const (
	asFlag       = "as"
	asTenantFlag = "as-tenant"
	asRoleFlag   = "as-role"
	asGroupFlag  = "as-group"
)

// addImpersonationFlags adds the flags for the fleet API. HostFlags has those for host clusters.
func addImpersonationFlags(flags *pflag.FlagSet) {
	flags.String(asFlag, "", "`user` to impersonate; the records of the fleet API also have your name")
	flags.String(asTenantFlag, "", "`tenant` of the user of --as in the fleet API")
	flags.StringArray(asRoleFlag, nil, "`role` of the user of --as in the fleet API: viewer, operator or system; can be repeated")
}

// checkImpersonationFlags returns a usage error if a flag is given without --as. The command would have the rights of its
// caller.
func checkImpersonationFlags(cmd *cobra.Command) error {
	as := cmd.Flags().Lookup(asFlag)
	if as == nil || as.Value.String() != "" {
		return nil
	}
	for _, name := range []string{asFlag, asTenantFlag, asRoleFlag, asGroupFlag} {
		if flag := cmd.Flags().Lookup(name); flag != nil && flag.Changed {
			return usageError(cmd, errors.New("--"+name+" needs a user to impersonate: --as=USER"))
		}
	}
	return nil
}

// RejectImpersonation returns a usage error if a command that cannot impersonate is asked to.
func RejectImpersonation(cmd *cobra.Command, why string) error {
	if flag := cmd.Flags().Lookup(asFlag); flag != nil && flag.Changed {
		return usageError(cmd, errors.New("--as is not possible: "+why))
	}
	return nil
}

// parseImpersonationFlags returns whom the flags name in the fleet API.
func parseImpersonationFlags(cmd *cobra.Command) (fleetclient.Impersonation, error) {
	var i fleetclient.Impersonation
	if cmd.Flags().Lookup(asFlag) == nil {
		return i, nil
	}
	if err := checkImpersonationFlags(cmd); err != nil { // completions come here without Run's check
		return i, err
	}
	i.User, _ = cmd.Flags().GetString(asFlag) // the commands of fleetloop have all three
	i.Tenant, _ = cmd.Flags().GetString(asTenantFlag)
	i.Roles, _ = cmd.Flags().GetStringArray(asRoleFlag)
	if i.User != "" && i.Tenant == "" && len(i.Roles) == 0 {
		return i, usageErrorf(cmd, "the fleet API does not know the tenant and the roles of %q: add --%s or --%s", i.User, asTenantFlag, asRoleFlag)
	}
	return i, nil
}
