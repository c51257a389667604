package settings

import "fmt"

// An OriginSource is the kind of source of a value.
type OriginSource string

// The sources, in ascending order of precedence.
const (
	FromDefault OriginSource = "default"
	FromFile    OriginSource = "file"
	FromContext OriginSource = "context"
	FromEnv     OriginSource = "env"
	FromFlag    OriginSource = "flag"
)

// An Origin is the effective value of one setting, with its source.
type Origin struct {
	// Key is the path of the setting, with dots between the keys.
	Key string

	// Value is the value as text, or "***" for a secret.
	Value string

	// Source is the kind of source.
	Source OriginSource

	// Name is the file's path, the context, the variable, or the flag with its dashes;
	// empty for a default.
	Name string

	// Line and Column are the position of the value in the file, from 1; zero for other sources.
	Line, Column int
}

// String returns the origin as `config show` prints it: "default", "file sentinel.yaml:3", "env
// BROKER_HOST", "flag --poll-interval".
func (o Origin) String() string {
	switch o.Source {
	case FromFile:
		return fmt.Sprintf("file %s:%d", o.Name, o.Line)
	case FromContext, FromEnv, FromFlag:
		return string(o.Source) + " " + o.Name
	case FromDefault:
	}
	return string(FromDefault)
}

// wrapError adds the setting and the source to an error.
func (o Origin) wrapError(err error) error {
	switch o.Source {
	case FromFile:
		return fmt.Errorf("%s:%d:%d: key %q: %w", o.Name, o.Line, o.Column, o.Key, err)
	case FromContext, FromEnv, FromFlag:
		return fmt.Errorf("%s: key %q: %w", o, o.Key, err)
	case FromDefault:
	}
	return fmt.Errorf("key %q: %w", o.Key, err)
}
