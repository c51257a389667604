package sentinelapp

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

// maxPublicFile limits the size of a file to convert.
const maxPublicFile = 1 << 20

func (c *command) newConvertCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "convert <file>",
		Short: "Convert a configuration file of the public HyperFleet sentinel",
		Long: `Convert a configuration file of the public HyperFleet sentinel to one for this
sentinel with the same behavior. Comments at the end of the output list the
settings that are not needed. The command does not connect to anything.`,
		Example: "  sentinel convert ./config.yaml > sentinel-config.yaml\n  sentinel validate --config ./sentinel-config.yaml",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			text, err := readFileRejectTooLarge(args[0])
			if err != nil {
				return err
			}
			out, err := ConvertPublicConfig(args[0], text)
			if err != nil {
				return err
			}
			_, err = c.stdout.Write(out)
			return err
		},
	}
}

func readFileRejectTooLarge(path string) ([]byte, error) {
	f, err := os.Open(path) //nolint:gosec // the user names the file
	if err != nil {
		return nil, fmt.Errorf("read the file to convert: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxPublicFile+1))
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return nil, fmt.Errorf("read the file to convert: %w", err)
	}
	if len(text) > maxPublicFile {
		return nil, fmt.Errorf("read the file to convert: %q is larger than %d bytes", path, maxPublicFile)
	}
	return text, nil
}
