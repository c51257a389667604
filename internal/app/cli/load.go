package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/cli/resource"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
)

type loadOptions struct {
	scope
	file     string
	ifExists string
	format   string
}

func newLoadCommand(s *session) *cobra.Command {
	var o loadOptions
	cmd := &cobra.Command{
		Use:   "load KIND -f FILE",
		Short: "Create many resources from an NDJSON file",
		Long: "Create one resource for each line of an NDJSON file of any length. A line is the JSON body of a POST:\n\n" +
			"  {\"name\":\"eu-1\",\"labels\":{\"region\":\"us-east\"},\"spec\":{\"version\":\"1.30\"}}\n\n" +
			"The server creates them in batches. A rejected line ends the load; earlier batches are kept, so the same\n" +
			"file can be loaded again with --if-exists skip. For a few resources, or YAML, use create.",
		Example: "  fleetloop load clusters -f fleet.ndjson\n" +
			"  fleetloop load nodepools --cluster eu-1 -f pools.ndjson --if-exists skip\n" +
			"  make-fleet | fleetloop load clusters -f -",
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return resource.Collections(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error { return loadResourcesFromFile(s, cmd, args, o) },
	}
	values := []string{string(v1.IfExistsFail), string(v1.IfExistsSkip)}
	cmd.Flags().StringVarP(&o.file, "filename", "f", "", "a `file` with one JSON object per line, or - (standard input)")
	cmd.Flags().StringVar(&o.ifExists, "if-exists", values[0], "`policy` for names that exist: fail (end the load) or skip")
	_ = cmd.RegisterFlagCompletionFunc("if-exists", cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	cmd.Flags().StringVar(&o.cluster, "cluster", "", "cluster of the node pools, by `name` or id")
	_ = cmd.RegisterFlagCompletionFunc("cluster", s.completeClusters)
	AddOutputFlag(cmd, &o.format, versionFormats())
	return cmd
}

func (o loadOptions) parseArgs(cmd *cobra.Command, args []string) (k resource.Kind, options fleetclient.LoadOptions, err error) {
	if err := CheckFormat(cmd, o.format, versionFormats()); err != nil {
		return k, options, err
	}
	if len(args) != 1 {
		return k, options, usageErrorf(cmd, "give one resource kind, for example fleetloop load clusters -f fleet.ndjson")
	}
	if k, err = resource.ParseKind(args[0]); err != nil {
		return k, options, usageError(cmd, err)
	}
	switch {
	case o.file == "":
		return k, options, usageErrorf(cmd, "give the file to load with -f; - is standard input")
	case k.IsChild() && o.cluster == "":
		return k, options, usageErrorf(cmd, "a %s needs a cluster; give it with --cluster", k.Singular)
	case !k.IsChild() && o.cluster != "":
		return k, options, usageErrorf(cmd, "--cluster is only for node pools; leave it out")
	}
	switch v1.IfExists(o.ifExists) {
	case v1.IfExistsFail:
	case v1.IfExistsSkip:
		options.SkipExisting = true
	default:
		return k, options, usageErrorf(cmd, "--if-exists %q is not %s or %s", o.ifExists, v1.IfExistsFail, v1.IfExistsSkip)
	}
	return k, options, nil
}

func loadResourcesFromFile(s *session, cmd *cobra.Command, args []string, o loadOptions) error {
	k, options, err := o.parseArgs(cmd, args)
	if err != nil {
		return err
	}
	in, size, err := s.openInput(o.file)
	if err != nil {
		return usageError(cmd, err)
	}
	defer func() { _ = in.Close() }() // read only
	client, err := s.newClient(cmd)
	if err != nil {
		return err
	}
	defer client.CloseIdle()
	ctx := cmd.Context()
	collection := k.Collection
	if k.IsChild() {
		owner, err := resource.Resolve(ctx, client, resource.Ref{Kind: k.Parent(), Name: o.cluster})
		if err != nil {
			return err
		}
		collection = fleetclient.Nested(k.Parent().Collection, owner.Resource.ID, collection)
	}
	lines := &countingReader{src: in, size: size}
	stopProgress := startProgressDisplay(s, lines)
	loaded, err := client.Collection(collection).Load(ctx, lines, options)
	stopProgress()
	if err != nil {
		return explainLoadError(ctx, fmt.Errorf("load %s: %w", k.Collection, err), loaded.Created, lines)
	}
	return printLoaded(s, k, o.format, loaded)
}

// openInput opens the file to load. A negative size means that the size is unknown.
func (s *session) openInput(name string) (in io.ReadCloser, size int64, err error) {
	if name == "-" {
		return io.NopCloser(s.env.Stdin), -1, nil
	}
	f, err := os.Open(name) //nolint:gosec // the user names the file
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = fmt.Errorf("%s is a folder; give one file", name)
	}
	if err != nil {
		_ = f.Close() // read only
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return f, -1, nil
	}
	return f, info.Size(), nil
}

// explainLoadError explains how to continue an interrupted load.
func explainLoadError(ctx context.Context, err error, created int64, lines *countingReader) error {
	code := ExitCode(err)
	refusal, refused := errors.AsType[*fleetclient.Error](err)
	switch {
	case refused && refusal.Problem.Loaded == nil, lines.bytes.Load() == 0:
		return err // the load has not started
	case refused && created > 0:
		code = CodePartial
	case ctx.Err() != nil:
		code = CodeInterrupted
	}
	next := "earlier lines were created; load the file again with --if-exists skip"
	if refused && refusal.Status < 500 {
		next = "fix the line; " + next
	}
	return &failure{err: err, code: code, next: next}
}

func printLoaded(s *session, k resource.Kind, format string, r v1.LoadResult) error {
	if format == terminal.FormatJSON {
		text, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("write JSON: %w", err)
		}
		_, err = s.env.Stdout.Write(append(text, '\n'))
		return err
	}
	text := fmt.Sprintf("%s: %d created", k.Collection, r.Created)
	if r.Skipped > 0 {
		text += fmt.Sprintf(", %d skipped", r.Skipped)
	}
	_, err := fmt.Fprintln(s.env.Stdout, text)
	return err
}

// startProgressDisplay prints the progress of a load every second until end is called.
func startProgressDisplay(s *session, lines *countingReader) (end func()) {
	if !s.env.Progress {
		return func() {}
	}
	const wipe = "\r\x1b[K"
	var g sync.WaitGroup
	done := make(chan struct{})
	g.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		begun := time.Now()
		for {
			select {
			case <-done:
				_, _ = io.WriteString(s.env.Stderr, wipe)
				return
			case <-tick.C:
				_, _ = io.WriteString(s.env.Stderr, wipe+lines.formatProgress(time.Since(begun)))
			}
		}
	})
	return func() {
		close(done)
		g.Wait()
	}
}

// countingReader counts the bytes and lines read from a file.
type countingReader struct {
	src   io.Reader
	size  int64 // negative if unknown
	lines atomic.Int64
	bytes atomic.Int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.src.Read(p)
	c.bytes.Add(int64(n))
	c.lines.Add(int64(bytes.Count(p[:n], []byte{'\n'})))
	return n, err //nolint:wrapcheck // io.EOF must stay io.EOF
}

func (c *countingReader) formatProgress(elapsed time.Duration) string {
	n := c.lines.Load()
	text := fmt.Sprintf("%d lines sent, %.0f a second", n, float64(n)/elapsed.Seconds())
	if c.size > 0 {
		text += fmt.Sprintf(", %d%%", 100*c.bytes.Load()/c.size)
	}
	return text
}
