package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
	"github.com/fleetloop/fleetloop/internal/version"
)

const (
	// maxClockSkew is how much clocks may differ before tokens are refused as expired or not yet valid.
	maxClockSkew = 30 * time.Second
	// expirySoon is how long before the expiry of a token that is not renewed a warning begins.
	expirySoon = 24 * time.Hour
)

// A level is the severity of a finding. The set is closed.
type level string

const (
	levelOK      level = "ok"
	levelNote    level = "note" // neither good nor bad
	levelWarning level = "warning"
	levelError   level = "error"
)

// A finding is the result of one check.
type finding struct {
	Level  level  `json:"level"`
	Object string `json:"object"`
	What   string `json:"what"`
	Why    string `json:"why,omitempty"`
	Fix    string `json:"fix,omitempty"` // a command or a sentence
}

// doctor is one run of the checks.
type doctor struct {
	session  *session
	access   *access
	findings []finding
}

func newDoctorCommand(s *session) *cobra.Command {
	var format string
	var host HostFlags
	var namespace string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check the configuration, the connections, the token and your permissions",
		Long: "Check the configuration, the connections, the versions, the clocks, the token and your permissions. Each finding\n" +
			"says what is wrong, why it matters, and how to fix it. The exit code is 0 if there is no error.\n\n" +
			"The host cluster is checked if the context, the environment or a flag names a kubeconfig or a context of one.",
		Example: "  fleetloop doctor\n  fleetloop --context=prod doctor -o json",
		Args:    cobra.NoArgs,

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
			path, _ := s.configPath(cmd)
			d := &doctor{session: s, access: a}
			d.checkFiles(path)
			d.checkTransportSecurity()
			if d.checkServer(cmd.Context()) {
				d.checkAnonymousAccess(cmd.Context())
				d.checkPermissions(cmd.Context())
			}
			d.checkTokenExpiry(cmd.Context())
			if host.Kubeconfig != "" || host.Context != "" {
				d.checkHostClusterAccess(cmd.Context(), host, namespace)
			}
			return d.printFindings(format)
		},
	}
	host.AddFlags(cmd.Flags())
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "kubernaut-executor", "`namespace` of the executions")
	AddOutputFlag(cmd, &format, versionFormats())
	return cmd
}

func (d *doctor) add(f finding) { d.findings = append(d.findings, f) }

// checkFiles checks who may read the files with tokens.
func (d *doctor) checkFiles(configPath string) {
	loginsPath, tokenPath := d.access.store.path, d.access.cfg.TokenFile
	hasToken := map[string]bool{
		configPath: d.access.report != nil && d.configFileHasToken(),
		loginsPath: true,
		tokenPath:  true,
	}
	for _, path := range []string{configPath, loginsPath, tokenPath} {
		info, err := os.Stat(path)
		if path == "" || err != nil {
			continue
		}
		mode := info.Mode().Perm()
		if hasToken[path] && !isPrivateFile(info) {
			d.add(finding{
				Level:  levelWarning,
				Object: path,
				What:   fmt.Sprintf("other users may read it (mode %04o)", mode),
				Why:    "it contains a token",
				Fix:    "chmod 600 " + path,
			})
			continue
		}
		d.add(finding{Level: levelOK, Object: path, What: fmt.Sprintf("mode %04o", mode)})
	}
}

// configFileHasToken reports whether the configuration file contains a token.
func (d *doctor) configFileHasToken() bool {
	for _, c := range d.access.cfg.Contexts {
		if c.Token != "" {
			return true
		}
	}
	return d.access.cfg.Token != "" && !isGiven(sourceOf(d.access.report, "token"))
}

// checkTransportSecurity checks that tokens are encrypted on the network.
func (d *doctor) checkTransportSecurity() {
	u, err := url.Parse(d.access.client.Endpoint())
	if d.access.cfg.InsecureTLS {
		d.add(finding{
			Level:  levelWarning,
			Object: d.access.cfg.Server,
			What:   "its certificate is not verified",
			Why:    "others on the network can read the token and change requests",
			Fix:    "name the CA with --ca-file, and remove --insecure-skip-tls-verify",
		})
	}
	if err != nil || u.Scheme == "https" || isLoopback(u.Hostname()) {
		return
	}
	d.add(finding{
		Level:  levelWarning,
		Object: d.access.cfg.Server,
		What:   "the connection is not encrypted",
		Why:    "others on the network can read the token and change requests",
		Fix:    "use an https URL: set the TLS certificate of the fleet API, then --server=https://" + u.Host,
	})
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || ip != nil && ip.IsLoopback()
}

// checkServer checks that the server answers, its version and its clock.
func (d *doctor) checkServer(ctx context.Context) (answers bool) {
	server := d.access.cfg.Server
	identity, err := d.access.client.WhoAmI(ctx)
	if errors.Is(err, errLoginExpired) {
		return false // checkTokenExpiry reports it
	}
	if err != nil {
		d.add(finding{levelError, server, err.Error(), "no command on the fleet API works", nextStepFor(err)})
		return false
	}
	remote := d.access.serverVersion()
	d.add(finding{Level: levelOK, Object: server, What: fmt.Sprintf("fleet-api %s answers %q", remote.Version, identity.Subject)})
	if skew := describeSkew(version.Get().Version, remote.Version); skew != "" {
		d.add(finding{levelWarning, server, skew, "commands may fail or leave out fields", "install the release " + remote.Version + " of fleetloop"})
	}
	if _, ahead := d.access.answers.get(); ahead.Abs() > maxClockSkew {
		d.add(finding{
			Level:  levelWarning,
			Object: server,
			What:   fmt.Sprintf("its clock and that of this machine differ by %s", terminal.Age(ahead.Abs())),
			Why:    "tokens may be refused as expired or not yet valid, and ages are wrong",
			Fix:    "synchronize the clocks: run 'timedatectl set-ntp true' on the machine that is wrong",
		})
	}
	return true
}

// checkAnonymousAccess checks that the server refuses requests without a token.
func (d *doctor) checkAnonymousAccess(ctx context.Context) {
	anonymous, err := d.access.client.WithToken(nil)
	if err != nil {
		return
	}
	if _, err := anonymous.WhoAmI(ctx); err == nil {
		d.add(finding{
			Level:  levelWarning,
			Object: d.access.cfg.Server,
			What:   "the server does not authenticate requests",
			Why:    "everyone who reaches it can change the fleet",
			Fix:    "start fleet-api with --auth-mode=bearer; see docs/how-to/set-up-authentication.md",
		})
	}
}

// checkPermissions asks what the caller may do with clusters and node pools.
func (d *doctor) checkPermissions(ctx context.Context) {
	for _, collection := range []string{v1.CollectionClusters, v1.CollectionNodePools} {
		var refused []string // verbs
		var reason string    // of the last one
		for _, verb := range []v1.Verb{v1.VerbGet, v1.VerbList, v1.VerbCreate, v1.VerbPatch, v1.VerbDelete} {
			answer, err := d.access.client.CanI(ctx, verb, collection, "")
			if err != nil {
				d.add(finding{levelError, collection, err.Error(), "your permissions are not known", nextStepFor(err)})
				return
			}
			if !answer.Allowed {
				refused = append(refused, string(verb))
				reason = answer.Reason
			}
		}
		if len(refused) == 0 {
			d.add(finding{Level: levelOK, Object: collection, What: "you may get, list, create, patch and delete them"})
			continue
		}
		d.add(newRefusedVerbsFinding(collection, refused, reason))
	}
}

// newRefusedVerbsFinding reports verbs that the caller may not use. It is an error if the caller may not even read.
func newRefusedVerbsFinding(collection string, refused []string, reason string) finding {
	f := finding{
		Level:  levelNote,
		Object: collection,
		What:   "you may not " + strings.Join(refused, ", ") + " them",
		Why:    terminal.ReplaceUnprintable(reason),
		Fix:    "if you need it, ask an administrator for a tenant or the role operator",
	}
	if refused[0] == string(v1.VerbGet) || refused[0] == string(v1.VerbList) {
		f.Level = levelError
		f.Fix = "ask an administrator for a tenant or the role viewer"
	}
	return f
}

// checkTokenExpiry checks how long the token is valid.
func (d *doctor) checkTokenExpiry(ctx context.Context) {
	a := d.access
	object := "token from " + a.describeTokenOrigin()
	at := a.currentTokenExpiry(ctx)
	left := at.Sub(d.session.env.Now())
	renewed := a.login != nil && a.login.Tokens.Refresh != ""
	fix := "put a new token in the place of the old one"
	if a.login != nil {
		fix = "fleetloop login"
	}
	switch {
	case !a.hasToken():
		d.add(finding{Level: levelNote, Object: "token", What: "there is none; requests are anonymous", Fix: "fleetloop login"})
	case at.IsZero():
		d.add(finding{Level: levelNote, Object: object, What: "its expiry is unknown"})
	case left <= 0:
		d.add(finding{levelError, object, "it expired at " + at.Local().Format(time.RFC3339), "the server refuses it", fix})
	case left < expirySoon && !renewed:
		d.add(finding{levelWarning, object, "it expires in " + terminal.Age(left), "it is not renewed", fix})
	default:
		d.add(finding{Level: levelOK, Object: object, What: "it expires in " + terminal.Age(left)})
	}
}

// printFindings prints the findings. An error among them is the exit code.
func (d *doctor) printFindings(format string) error {
	for i := range d.findings {
		f := &d.findings[i]
		f.What = terminal.ReplaceUnprintable(f.What)
		f.Fix = terminal.ReplaceUnprintable(d.session.env.nameProgram(f.Fix))
	}
	stdout := d.session.env.Stdout
	var err error
	if format == terminal.FormatJSON {
		err = WriteYAMLOrJSON(stdout, format, map[string][]finding{"findings": d.findings})
	} else {
		_, err = io.WriteString(stdout, formatFindings(d.findings))
	}
	if err != nil {
		return err
	}
	if slices.ContainsFunc(d.findings, func(f finding) bool { return f.Level == levelError }) {
		return errRefused // the findings are printed
	}
	return nil
}

// formatFindings returns the findings for people.
func formatFindings(findings []finding) string {
	var b strings.Builder
	for _, f := range findings {
		fmt.Fprintf(&b, "%-8s %s: %s\n", f.Level, f.Object, f.What)
		if f.Why != "" {
			fmt.Fprintf(&b, "         why: %s\n", f.Why)
		}
		if f.Fix != "" {
			fmt.Fprintf(&b, "         fix: %s\n", f.Fix)
		}
	}
	return b.String()
}
