package settings

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// maxProblems is the maximum number of reported errors; a file of a completely different kind would
// have thousands.
const maxProblems = 50

// problems holds the errors of a configuration.
type problems []problem

type problem struct {
	place place
	err   error
}

// addProblemf records an error of the value that came from o.
func (l *loader) addProblemf(o Origin, format string, args ...any) {
	l.bad[o.Key] = true
	l.problems = append(l.problems, problem{place{o.Line, o.Column}, o.wrapError(fmt.Errorf(format, args...))})
}

// joinInFileOrder joins the problems: first those of the file in its order, then the others.
func (ps problems) joinInFileOrder() error {
	slices.SortStableFunc(ps, func(a, b problem) int {
		if (a.place.line == 0) != (b.place.line == 0) {
			return cmp.Compare(b.place.line, a.place.line)
		}
		return cmp.Or(cmp.Compare(a.place.line, b.place.line), cmp.Compare(a.place.column, b.place.column))
	})
	var errs []error
	for i, p := range ps {
		if i == maxProblems {
			errs = append(errs, fmt.Errorf("and %d more", len(ps)-maxProblems))
			break
		}
		errs = append(errs, p.err)
	}
	return errors.Join(errs...)
}
