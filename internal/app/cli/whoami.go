package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
)

func newWhoAmICommand(s *session) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "whoami",
		Short: "Show your identity and permissions in the fleet API",
		Example: "  fleetloop whoami\n" +
			"  fleetloop --token-file ~/.fleet-token whoami -o json",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := CheckFormat(cmd, format, versionFormats()); err != nil {
				return err
			}
			a, err := s.newAccessFromConfigAndLogin(cmd)
			if err != nil {
				return err
			}
			defer a.client.CloseIdle()
			identity, err := a.client.WhoAmI(cmd.Context())
			switch {
			case fleetclient.IsNotFound(err):
				return &failure{
					err:  fmt.Errorf("the server %s does not support whoami", a.cfg.Server),
					code: CodeFailed,
					next: "use a fleet API of the same release",
				}
			case err != nil:
				return err
			case format == terminal.FormatJSON:
				return WriteYAMLOrJSON(s.env.Stdout, format, struct {
					v1.Identity

					Context string    `json:"context,omitempty"`
					Server  string    `json:"server"`
					Token   string    `json:"token"` // where it comes from
					Expires time.Time `json:"token_expires,omitzero"`
				}{identity, a.cfg.CurrentContext, a.cfg.Server, a.describeTokenOrigin(), a.currentTokenExpiry(cmd.Context())})
			}
			return showIdentity(s, a, identity, a.currentTokenExpiry(cmd.Context()))
		},
	}
	AddOutputFlag(cmd, &format, versionFormats())
	return cmd
}

func showIdentity(s *session, a *access, i v1.Identity, expires time.Time) error {
	reports := "no"
	if i.CanReportStatus {
		reports = "yes"
	}
	w := tabwriter.NewWriter(s.env.Stdout, 0, 0, 2, ' ', 0)
	rows := [][2]string{
		{"Context:", cmp.Or(terminal.ReplaceUnprintable(a.cfg.CurrentContext), "none")},
		{"Server:", a.cfg.Server},
		{"Subject:", terminal.ReplaceUnprintable(i.Subject)},
		{"Tenant:", cmp.Or(terminal.ReplaceUnprintable(i.Tenant), "none")},
		{"Roles:", cmp.Or(terminal.ReplaceUnprintable(strings.Join(i.Roles, ", ")), "none")},
		{"Read access:", formatScope(i.ReadScope, i.Tenant)},
		{"Write access:", formatScope(i.WriteScope, i.Tenant)},
		{"Status reports:", reports},
		{"Token:", terminal.ReplaceUnprintable(a.describeTokenOrigin())},
	}
	if a.hasToken() {
		rows = append(rows, [2]string{"Token expires:", s.formatExpiry(a, expires)})
	}
	if i.ImpersonatedBy != "" {
		rows = slices.Insert(rows, 3, [2]string{"Impersonated by:", terminal.ReplaceUnprintable(i.ImpersonatedBy)}) // after the subject
	}
	for _, row := range rows {
		_, _ = fmt.Fprintln(w, row[0]+"\t"+row[1]) // Flush returns the error
	}
	return w.Flush()
}

// formatExpiry describes when the token expires.
func (s *session) formatExpiry(a *access, at time.Time) string {
	switch left := at.Sub(s.env.Now()); {
	case at.IsZero():
		return "unknown"
	case a.login != nil && a.login.Tokens.Refresh != "":
		return at.Local().Format(time.RFC3339) + ", then it is renewed"
	case left <= 0:
		return at.Local().Format(time.RFC3339) + ", expired"
	default:
		return at.Local().Format(time.RFC3339) + ", in " + terminal.Age(left)
	}
}

func formatScope(r v1.Scope, tenant string) string {
	switch r {
	case v1.ScopeAll:
		return "all tenants"
	case v1.ScopeTenant:
		return "tenant " + terminal.ReplaceUnprintable(tenant)
	case v1.ScopeNone:
	}
	return "nothing"
}

// printNoneFoundInScope reports an empty result and the tenant of the caller. It leaves the tenant out if the
// server does not identify the caller.
func (s *session) printNoneFoundInScope(ctx context.Context, client *fleetclient.Client, collection string) {
	where := ""
	if identity, err := client.WhoAmI(ctx); err == nil {
		switch {
		case identity.ReadScope == v1.ScopeAll:
			where = " in any tenant"
		case identity.Tenant != "":
			where = " in tenant " + terminal.ReplaceUnprintable(identity.Tenant)
		}
	}
	s.printNote("No %s found%s.", collection, where)
}
