package cli

import (
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fleetloop/fleetloop/internal/app/terminal"
)

// An outputFlag is the value of -o. With a template, the command writes JSON, and Output prints that by the
// template.
type outputFlag struct {
	format   *string
	formats  []string
	template *outputTemplate
}

// AddOutputFlag adds -o with one of the given formats. The first is the default. A command with JSON accepts
// templates, too.
func AddOutputFlag(cmd *cobra.Command, format *string, formats []string) {
	*format = formats[0]
	shown := withTemplates(formats)
	cmd.Flags().VarP(&outputFlag{format: format, formats: formats}, outputFlagName, "o", "output `format`: "+strings.Join(shown, ", "))
	var completions []string
	for _, text := range shown {
		completions = append(completions, strings.TrimSuffix(text, "…")) // the user writes the rest
	}
	_ = cmd.RegisterFlagCompletionFunc(
		outputFlagName,
		cobra.FixedCompletions(completions, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace),
	)
}

// withTemplates adds the templates to formats that include JSON.
func withTemplates(formats []string) []string {
	if !slices.Contains(formats, terminal.FormatJSON) {
		return formats
	}
	return append(slices.Clone(formats), templateFormats()...)
}

const outputFlagName = "output"

// String returns the format.
func (f *outputFlag) String() string {
	if f.format == nil { // pflag asks a zero value
		return ""
	}
	return *f.format
}

// Set reads a format. The command refuses one that it does not have.
func (f *outputFlag) Set(text string) (err error) {
	*f.format, f.template = text, nil
	if !slices.Contains(f.formats, terminal.FormatJSON) {
		return nil
	}
	if f.template, err = parseOutputTemplate(text); f.template != nil {
		*f.format = terminal.FormatJSON
	}
	return err
}

// Type returns the type for the help of commands.
func (f *outputFlag) Type() string { return "string" }

// An Output is the standard output of a command. It prints JSON by a template if -o has one.
type Output struct {
	w    io.Writer
	pipe *io.PipeWriter // nil without a template
	done chan error
}

// NewOutput returns the output of the commands of one command line. All of them must have the same one.
func NewOutput(w io.Writer) *Output {
	if out, ok := w.(*Output); ok {
		return out
	}
	return &Output{w: w}
}

// Write implements io.Writer.
func (o *Output) Write(p []byte) (int, error) {
	if o.pipe != nil {
		return o.pipe.Write(p)
	}
	return o.w.Write(p) //nolint:wrapcheck // a writer adds nothing to errors
}

func (o *Output) startTemplateOutput(cmd *cobra.Command) {
	flag := cmd.Flags().Lookup(outputFlagName)
	if flag == nil {
		return
	}
	value, ok := flag.Value.(*outputFlag)
	if !ok || value.template == nil {
		return
	}
	noHeaders := cmd.Flags().Lookup("no-headers")
	r, w := io.Pipe()
	o.pipe, o.done = w, make(chan error, 1)
	go func() {
		err := value.template.printValues(o.w, r, noHeaders != nil && noHeaders.Value.String() == "true")
		_ = r.CloseWithError(err) // which fails the next write of the command
		o.done <- err
	}()
}

// finishTemplateOutput waits until everything is printed. A failed command may leave incomplete JSON, whose error says nothing.
func (o *Output) finishTemplateOutput(commandErr error) error {
	if o.pipe == nil {
		return commandErr
	}
	_ = o.pipe.Close()
	o.pipe = nil
	if err := <-o.done; commandErr == nil {
		return err
	}
	return commandErr
}
