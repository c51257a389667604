package terminal_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/fleetloop/fleetloop/internal/app/terminal"
)

func TestVersion(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		args   []string
		want   string
	}{
		"Command": {"as kubectl has it", []string{"version"}, "test, version dev (revision: "},
		"Flag":    {"as cobra has it", []string{"--version"}, "test, version dev (revision: "},
		"Neither": {"the program runs", nil, "running"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			root := &cobra.Command{Use: "test", RunE: func(*cobra.Command, []string) error {
				_, err := out.WriteString("running")
				return err
			}}
			root.SetOut(&out)
			terminal.AddVersionCommandAndFlag(root)
			root.SetArgs(tc.args)
			if err := root.ExecuteContext(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := out.String(); !strings.HasPrefix(got, tc.want) || strings.Count(got, "running") > strings.Count(tc.want, "running") {
				t.Errorf("%s: %v prints %q, want %q", tc.reason, tc.args, got, tc.want)
			}
		})
	}
}
