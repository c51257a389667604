// Package settings reads the configuration of a process into a struct.
package settings

import (
	"errors"
	"io"

	"github.com/spf13/pflag"
)

// Source is where the values come from, weakest first.
type Source struct {
	// File is the path of a YAML file, or empty.
	File string

	// FileData is the content of the file, if it has been read already.
	FileData []byte

	// Env looks up an environment variable. Nil is no environment.
	Env func(name string) (string, bool)

	// Flags are parsed flags. Nil is none.
	Flags *pflag.FlagSet
}

// AddFlags registers a flag for each setting that has one.
func AddFlags(fs *pflag.FlagSet, cfg any) {}

// Load fills cfg, a pointer to a struct.
func Load(cfg any, src Source) (*Report, error) { return nil, errors.ErrUnsupported }

// A Report says what is in force and where it came from.
type Report struct{}

// Origins lists every setting.
func (r *Report) Origins() []Origin { return nil }

// Wrap places an error found later at the setting's origin.
func (r *Report) Wrap(key string, err error) error { return err }

// Write writes the configuration in force as YAML.
func (r *Report) Write(w io.Writer, withOrigins bool) error { return errors.ErrUnsupported }

// An Origin is the effective value of one setting and where it came from.
type Origin struct {
	// Key is the dotted path of the setting.
	Key string

	// Value is the value as text, redacted if it is secret.
	Value string

	// Line and Column are the place in the file, 0 if it is not from one.
	Line, Column int
}

// An Entry describes one setting for reference documentation.
type Entry struct {
	// Key is the dotted path of the setting.
	Key string
}

// Schema gives the JSON Schema (draft 2020-12) of the configuration file.
func Schema(cfg any, title string) ([]byte, error) { return nil, errors.ErrUnsupported }

// Reference describes every setting.
func Reference(cfg any) []Entry { return nil }

// WriteMarkdown writes the entries as a table.
func WriteMarkdown(w io.Writer, entries []Entry) error { return errors.ErrUnsupported }
