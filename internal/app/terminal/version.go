package terminal

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/fleetloop/fleetloop/internal/version"
)

// AddVersionCommandAndFlag adds the command "version" and the flag --version, which print the same text.
func AddVersionCommandAndFlag(root *cobra.Command) {
	text := version.Get().Text(root.Name())
	root.AddCommand(&cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := io.WriteString(cmd.OutOrStdout(), text)
			return err
		},
	})
	AddVersionFlag(root, text)
}

// AddVersionFlag adds the flag --version, with which root prints the text instead of running. The flag of
// cobra would link text/template, with which the linker keeps every exported method.
func AddVersionFlag(root *cobra.Command, text string) {
	requested := root.Flags().Bool("version", false, "print the version and exit")
	run := root.RunE
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if *requested {
			_, err := io.WriteString(cmd.OutOrStdout(), text)
			return err
		}
		return run(cmd, args)
	}
}
