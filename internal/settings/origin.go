package settings

import "fmt"

// An OriginSource is a kind of place where a value comes from.
type OriginSource string

// The sources, weakest first.
const (
	FromDefault OriginSource = "default"
	FromFile    OriginSource = "file"
	FromEnv     OriginSource = "env"
	FromFlag    OriginSource = "flag"
)

// An Origin is the value of one setting that is in force and where it came
// from.
type Origin struct {
	// Key is the path of the setting, with dots between the keys.
	Key string

	// Value is the value as text, and "***" for a secret.
	Value string

	// Source is what kind of place it came from.
	Source OriginSource

	// Name is the file's path, the variable, or the flag with its dashes;
	// empty for a default.
	Name string

	// Line and Column are where the value begins in the file, from 1; zero if
	// it is from elsewhere.
	Line, Column int
}

// String is the origin as `config show` prints it: "default",
// "file sentinel.yaml:3", "env BROKER_HOST", "flag --poll-interval".
func (o Origin) String() string {
	switch o.Source {
	case FromFile:
		return fmt.Sprintf("file %s:%d", o.Name, o.Line)
	case FromEnv, FromFlag:
		return string(o.Source) + " " + o.Name
	case FromDefault:
	}
	return string(FromDefault)
}

// wrapError says of which setting, and of which place, an error is.
func (o Origin) wrapError(err error) error {
	switch o.Source {
	case FromFile:
		return fmt.Errorf("%s:%d:%d: key %q: %w", o.Name, o.Line, o.Column, o.Key, err)
	case FromEnv, FromFlag:
		return fmt.Errorf("%s: key %q: %w", o, o.Key, err)
	case FromDefault:
	}
	return fmt.Errorf("key %q: %w", o.Key, err)
}
