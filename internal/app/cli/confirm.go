package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/fleetloop/fleetloop/internal/app/cli/resource"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
)

// Confirm asks a question on standard error. The end of standard input means no. Commands ask only if Interactive
// is true, because a script would wait for an answer forever.
func (env Env) Confirm(question string) (bool, error) {
	if _, err := fmt.Fprintf(env.Stderr, "%s [y/N] ", terminal.ReplaceUnprintable(question)); err != nil {
		return false, err
	}
	answer, err := bufio.NewReader(env.Stdin).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("read the confirmation: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return true, nil
	}
	return false, nil
}

// RequireTerminal returns an error if nobody can answer a question. next says what a script gives instead.
func (env Env) RequireTerminal(next string) error {
	if env.Interactive {
		return nil
	}
	return NewUsageError(errors.New("no terminal for the confirmation prompt"), next)
}

// confirm asks a question, and returns an error with the text refused if the answer is no.
func (s *session) confirm(question, refusalMessage string) error {
	yes, err := s.env.Confirm(question)
	if err != nil || yes {
		return err
	}
	return &failure{err: errors.New(refusalMessage), code: CodeFailed, next: "run the command again and answer y, or give --yes"}
}

// maxNamesToConfirm is the maximum number of names in a question.
const maxNamesToConfirm = 5

// confirmDeletion asks before resources are deleted that the user did not name.
func (s *session) confirmDeletion(items []resource.Item, doneVerb string) error {
	names := make([]string, 0, maxNamesToConfirm+1)
	for _, i := range items[:min(len(items), maxNamesToConfirm)] {
		names = append(names, i.KindAndName())
	}
	if more := len(items) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	what := "1 resource"
	if len(items) != 1 {
		what = fmt.Sprintf("%d resources", len(items))
	}
	return s.confirm(fmt.Sprintf("Delete %s (%s)?", what, strings.Join(names, ", ")), "not confirmed, so nothing was "+doneVerb)
}
