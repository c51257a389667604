package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/cli/resource"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
)

// The exit codes.
const (
	CodeOK           = 0
	CodeFailed       = 1
	CodeUsage        = 2
	CodePrecondition = 3
	CodePartial      = 4
	CodeDiffFailed   = 5
	CodeTimeout      = 124
	CodeInterrupted  = 130
)

// ExitCodeDoc documents one exit code.
type ExitCodeDoc struct {
	Code    int
	Meaning string
}

// ExitCodes returns all exit codes in rising order, for documentation.
func ExitCodes() []ExitCodeDoc {
	return []ExitCodeDoc{
		{CodeOK, "done"},
		{CodeFailed, "failed: the server is unreachable, or rejected or failed the request"},
		{CodeUsage, "invalid command line, configuration or file; nothing was sent"},
		{CodePrecondition, "the resource does not exist, or its state does not allow the request"},
		{CodePartial, "partial failure: some items succeeded, others failed"},
		{CodeDiffFailed, "diff -f failed (for diff -f, 1 means that the files differ)"},
		{CodeTimeout, "timeout of a wait"},
		{CodeInterrupted, "interrupted"},
	}
}

func exitCodeHelp() string {
	var b strings.Builder
	b.WriteString("Exit codes:\n")
	for _, c := range ExitCodes() {
		fmt.Fprintf(&b, "  %3d  %s\n", c.Code, c.Meaning)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// failure is an error with advice for the user.
type failure struct {
	err  error
	next string // a command or a sentence, may be empty
	code int
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// NewUsageError returns an error about the arguments or the configuration of a command, for
// commands of other packages. Next is advice for the user and may be empty.
func NewUsageError(err error, next string) error {
	return &failure{err: err, code: CodeUsage, next: next}
}

// NewError returns an error with the given exit code. Next is advice for the user and may be empty.
func NewError(err error, code int, next string) error {
	return &failure{err: err, code: code, next: next}
}

// usageError returns an error about the arguments of a command.
func usageError(cmd *cobra.Command, err error) error {
	return NewUsageError(err, cmd.CommandPath()+" --help")
}

func usageErrorf(cmd *cobra.Command, format string, args ...any) error {
	return usageError(cmd, fmt.Errorf(format, args...))
}

// ExitCode returns the exit code for the error of a command.
func ExitCode(err error) int {
	if err == nil {
		return CodeOK
	}
	if f, ok := errors.AsType[*failure](err); ok {
		return f.code
	}
	if _, ok := errors.AsType[*resource.LookupError](err); ok {
		return CodePrecondition
	}
	if e, ok := errors.AsType[*fleetclient.Error](err); ok {
		switch e.Status {
		case http.StatusNotFound, http.StatusGone, http.StatusConflict, http.StatusPreconditionFailed:
			return CodePrecondition
		}
		return CodeFailed
	}
	if errors.Is(err, context.Canceled) {
		return CodeInterrupted
	}
	return CodeFailed
}

// joinErrorsWithExitCode joins the errors about several objects. succeeded is the number of successes.
func joinErrorsWithExitCode(errs []error, succeeded int) error {
	switch {
	case len(errs) == 0:
		return nil
	case succeeded > 0:
		return &failure{err: errors.Join(errs...), code: CodePartial, next: nextStepFor(errs[0])}
	case len(errs) == 1:
		return errs[0]
	}
	return &failure{err: errors.Join(errs...), code: ExitCode(errs[0]), next: nextStepFor(errs[0])}
}

// printError prints an error and the next step for the user.
func printError(w io.Writer, err error) {
	var b strings.Builder
	for text := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintf(&b, "error: %s\n", terminal.ReplaceUnprintable(strings.ReplaceAll(text, "\t", "  ")))
	}
	if next := nextStepFor(err); next != "" {
		fmt.Fprintf(&b, "next:  %s\n", next)
	}
	_, _ = io.WriteString(w, b.String()) // there is no other output
}

// nextStepFor returns advice for the user, or an empty string.
func nextStepFor(err error) string {
	if f, ok := errors.AsType[*failure](err); ok && f.next != "" {
		return f.next
	}
	if e, ok := errors.AsType[*resource.LookupError](err); ok {
		all := "fleetloop get " + e.Ref.Kind.Collection
		if errors.Is(e, resource.ErrAmbiguous) {
			return fmt.Sprintf("run '%s -o wide' for their ids; use an id, or PARENT/%s", all, e.Ref.Name)
		}
		return "run '" + all + "' to list the resources"
	}
	if errors.Is(err, fleetclient.ErrNotImpersonated) {
		return "use a fleet API of the same release; nothing was sent with your own rights"
	}
	if errors.Is(err, errLoginExpired) {
		return "run 'fleetloop login'"
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "give the certificate of its CA with --ca-file or FLEETLOOP_CA_FILE"
	}
	switch {
	case errors.Is(err, fleetclient.ErrUnreachable):
		return showOrigins + "which server is used; run 'fleetloop up' to start one on this machine"
	case errors.Is(err, fleetclient.ErrInvalidResponse):
		return showOrigins + "which server is used"
	}
	if e, ok := errors.AsType[*fleetclient.Error](err); ok {
		return nextStepForResponse(e)
	}
	return ""
}

// showOrigins begins a next step for a setting with an unexpected value.
const showOrigins = "run 'fleetloop config show --origins' to see "

// nextStepForResponse returns the next step for an error that the fleet API returned.
func nextStepForResponse(e *fleetclient.Error) string {
	switch {
	case e.Problem.Code == codeSyncPaused:
		return "run 'fleetloop clusters resume' to end the pause"
	case e.Problem.Code == codeSyncRunning:
		return "run 'fleetloop clusters sync' to see the result"
	case e.Status == http.StatusUnauthorized && e.TokenSent:
		return "the server rejected the token: it is invalid, expired, or for another server; " + showOrigins + "where the token comes from"
	case e.Status == http.StatusUnauthorized:
		return "run 'fleetloop login', or set a token with --token-file, FLEETLOOP_TOKEN_FILE or FLEETLOOP_TOKEN"
	case e.Status == http.StatusForbidden:
		return "request the permission, or use another token with --token-file"
	case e.RetryAfter() > 0:
		return "retry in " + terminal.Age(e.RetryAfter())
	}
	return ""
}
