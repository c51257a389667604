package cli

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
	"github.com/fleetloop/fleetloop/internal/version"
)

// supportedSkew is how many minor releases the command line and the fleet API may differ.
const supportedSkew = 1

// versions are the versions of the command line and of the fleet API, as version prints them in JSON.
type versions struct {
	Client clientVersion  `json:"client"`
	Server *serverVersion `json:"server,omitempty"`
	Skew   string         `json:"skew,omitempty"` // a sentence if the difference is not supported
}

type clientVersion struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

type serverVersion struct {
	URL      string `json:"url"`
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
}

func newVersionCommand(s *session) *cobra.Command {
	var format string
	var clientOnly bool
	cmd := &cobra.Command{
		Use:     "version",
		Example: "  fleetloop version\n  fleetloop version --client -o json",
		Short:   "Print the versions of the command line and of the fleet API",
		Long: "Print the versions of the command line and of the fleet API, and a warning if they differ by more than one minor\n" +
			"release.",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := CheckFormat(cmd, format, versionFormats()); err != nil {
				return err
			}
			build := version.Get()
			v := versions{Client: clientVersion{build.Version, build.Revision, build.Go, build.Platform}}
			var failed error
			if !clientOnly {
				v.Server, failed = s.getServerVersion(cmd)
			}
			if v.Server != nil {
				v.Skew = describeSkew(build.Version, v.Server.Version)
			}
			if err := s.printVersions(build, v, format); err != nil {
				return err
			}
			return failed
		},
	}
	cmd.Flags().BoolVar(&clientOnly, "client", false, "print only the version of the command line; send no request")
	AddOutputFlag(cmd, &format, versionFormats())
	return cmd
}

func (s *session) printVersions(build version.Build, v versions, format string) error {
	if format == terminal.FormatJSON {
		return WriteYAMLOrJSON(s.env.Stdout, format, v)
	}
	text := build.Text("fleetloop")
	if v.Server != nil {
		text += fmt.Sprintf(
			"fleet-api, version %s (revision: %s)\n  url:          %s\n",
			terminal.ReplaceUnprintable(v.Server.Version),
			terminal.ReplaceUnprintable(cmp.Or(v.Server.Revision, unknownVersion)),
			v.Server.URL,
		)
	}
	if v.Skew != "" {
		s.printNote("warning: %s", v.Skew)
	}
	_, err := io.WriteString(s.env.Stdout, text)
	return err
}

// unknownVersion stands for a server that does not tell its version.
const unknownVersion = "unknown"

// getServerVersion asks the fleet API for its version. The identity of the caller does not matter.
func (s *session) getServerVersion(cmd *cobra.Command) (*serverVersion, error) {
	a, err := s.newAccessFromConfigAndLogin(cmd)
	if err != nil {
		return nil, err
	}
	defer a.client.CloseIdle()
	if _, err := a.client.WhoAmI(cmd.Context()); err != nil && !fleetclient.IsNotFound(err) {
		return nil, fmt.Errorf("get the version of the server: %w", err)
	}
	return a.serverVersion(), nil
}

// serverVersion returns the version that the last response of the server has told.
func (a *access) serverVersion() *serverVersion {
	text, _ := a.answers.get()
	name, revision, _ := strings.Cut(text, " ")
	return &serverVersion{URL: a.cfg.Server, Version: cmp.Or(name, unknownVersion), Revision: revision}
}

// describeSkew returns a sentence if two releases differ by more than is supported. Of builds that are no releases
// nothing is known.
func describeSkew(client, server string) string {
	c, okClient := parseRelease(client)
	s, okServer := parseRelease(server)
	if !okClient || !okServer || c[0] == s[0] && max(c[1], s[1])-min(c[1], s[1]) <= supportedSkew {
		return ""
	}
	return fmt.Sprintf("fleetloop %s and fleet-api %s differ by more than one minor release, which is not supported; use fleetloop %d.%d", client, server, s[0], s[1])
}

func parseRelease(text string) (majorMinor [2]int, ok bool) {
	parts := strings.SplitN(text, ".", 3)
	if len(parts) != 3 {
		return majorMinor, false
	}
	major, errMajor := strconv.Atoi(parts[0])
	minor, errMinor := strconv.Atoi(parts[1])
	return [2]int{major, minor}, errMajor == nil && errMinor == nil
}
