// Package settings reads the configuration of a process into a struct. The
// sources, in ascending order of precedence, are the defaults in the struct's
// tags, a YAML file, a Context, the environment, and flags.
//
// It is strict. An unknown key, a duplicate key, a value of the wrong type
// or out of range is an error that names the key, the source of the value
// (file:line:column, the variable or the flag) and the most similar key.
// All errors are reported at once, one per line, so a process that starts has
// understood its whole configuration. Secrets are never shown, not even in
// errors.
//
// A setting is an exported field with these tags. A field without a key is
// not a setting, and an embedded struct without a key adds its fields to the
// struct around it:
//
//	key:"poll_interval"         its key in the file; nested structs are nested mappings
//	alias:"pollInterval"        alternative keys, separated by commas; setting two is an error
//	env:"SENTINEL_POLL"         its variable, or several separated by commas; an empty one counts as unset
//	flag:"poll-interval"        its flag, see AddFlags
//	default:"5s"                its default value, in the form of the environment
//	doc:"How often to poll."    its description
//	validate:"gt=0"             rules, see violation.isViolated
//	secret:"true"               hide it; a Secret is always hidden
//	file:"token_file"           key of the path of a file that holds the value;
//	                            each variable then has a variant with the suffix _FILE
//
// Settings of one type may share a variable or a flag; all of them then get
// its value.
//
// A field that is not zero when Load is called keeps its value as its
// default. The supported types are strings, Secret, booleans, numbers,
// time.Duration with a unit ("1m30s"), implementations of
// encoding.TextUnmarshaler, pointers to these (nil means unset), structs,
// OrderedMap, Tree, and lists of, and maps from string to, any of these. Lists and
// maps of scalars are written as "a,b" and "k=v,l=w" in the environment and in
// flags; a list or map of structs can only be set in the file. A list or a map
// replaces that of a source with lower precedence.
//
// Invalid tags are a bug in the program: every function that reads them
// panics.
package settings

import (
	"maps"
	"os"
	"reflect"
	"strings"

	"github.com/spf13/pflag"
)

// Source holds the sources of the values, in ascending order of precedence. The zero value gives
// only the defaults.
type Source struct {
	// File is the path of a YAML file of at most 1 MiB, or empty for none.
	File string

	// FileData is the content of the file if it has already been read; File is then only its name
	// in errors.
	FileData []byte

	// Context is a set of values that the caller has selected from those of the file.
	Context Context

	// Env returns an environment variable, as OSEnv does. Nil means no environment.
	Env func(name string) (string, bool)

	// Flags are the parsed flags, including those of AddFlags or others with the same names. Only
	// flags that were set count. Nil means no flags.
	Flags *pflag.FlagSet
}

// OSEnv returns a variable of the process's environment. It is Source.Env in a real process.
func OSEnv(name string) (string, bool) { return os.LookupEnv(name) }

// A Context is a named set of values.
type Context struct {
	Name string

	// Values holds the texts of scalars by the paths of the settings. The others are not set.
	Values map[string]string
}

// Load fills cfg, a pointer to a struct, from src and validates it. The error joins one error for
// each problem; cfg must then not be used.
func Load(cfg any, src Source) (*Report, error) {
	root, value := readShapeAndSetDefaults(cfg)
	l := &loader{
		src:     src,
		root:    root,
		origins: map[string]Origin{},
		places:  map[string]place{},
		bad:     map[string]bool{},
	}

	// The sources follow in ascending order of precedence.
	settings := listSettings(root, value)
	for _, s := range settings {
		l.origins[s.field.path] = Origin{Key: s.field.path, Source: FromDefault}
	}
	if err := l.readAndDecodeFile(value); err != nil {
		return nil, err
	}
	for _, s := range settings {
		l.applyContextValue(s.field, s.value)
		l.applyEnvValue(s.field, s.value)
		l.applyFlagValue(s.field, s.value)
	}

	validator{l}.validateSection(root, value, "")
	if err := l.problems.joinInFileOrder(); err != nil {
		return nil, err
	}
	return &Report{file: src.File, root: root, value: value, origins: l.origins, places: l.places}, nil
}

// A place is the position of a value in the file; zero means that it is not in the file.
type place struct{ line, column int }

// A loader holds the state of one Load.
type loader struct {
	src      Source
	root     *shape
	origins  map[string]Origin // of each setting, by its path
	places   map[string]place  // of each value in the file, by its path
	bad      map[string]bool   // paths that already have a problem
	nodes    int               // number of visited values of the file
	depth    int               // depth of the current value
	problems problems
}

// applyContextValue reads the value of a setting from the context.
func (l *loader) applyContextValue(f *field, v reflect.Value) {
	text, ok := l.src.Context.Values[f.path]
	if !ok {
		return
	}
	o := Origin{Key: f.path, Source: FromContext, Name: l.src.Context.Name}
	l.recordOverridingOrigin(o)
	if err := setValueFromText(f.shape, v, text); err != nil {
		l.addProblemf(o, "%v", err)
	}
}

// applyEnvValue reads the value of a setting from its variables.
func (l *loader) applyEnvValue(f *field, v reflect.Value) {
	if l.src.Env == nil {
		return
	}
	given := ""
	for _, variable := range f.envVariables() {
		text, ok := l.src.Env(variable.name)
		if !ok || text == "" {
			continue
		}
		o := Origin{Key: f.path, Source: FromEnv, Name: variable.name}
		if given != "" {
			l.addProblemf(o, "is also set by %s; unset one of them", given)
			continue
		}
		given = variable.name
		l.recordOverridingOrigin(o)
		var err error
		if variable.isFile {
			err = setValueFromFile(f.shape, v, text)
		} else {
			err = setValueFromText(f.shape, v, text)
		}
		if err != nil {
			l.addProblemf(o, "%v", err)
		}
	}
}

// An envVariable holds a value, or the path of a file with the value.
type envVariable struct {
	name   string
	isFile bool
}

func (f *field) envVariables() []envVariable {
	var out []envVariable
	for _, name := range f.env {
		out = append(out, envVariable{name: name})
		if f.fileKey != "" {
			out = append(out, envVariable{name: name + "_FILE", isFile: true})
		}
	}
	return out
}

// applyFlagValue reads the value of a setting from its flag.
func (l *loader) applyFlagValue(f *field, v reflect.Value) {
	if f.flag == "" || l.src.Flags == nil {
		return
	}
	flag := l.src.Flags.Lookup(f.flag)
	if flag == nil || !flag.Changed {
		return
	}
	o := Origin{Key: f.path, Source: FromFlag, Name: "--" + f.flag}
	l.recordOverridingOrigin(o)
	var err error
	if list, ok := flag.Value.(pflag.SliceValue); ok {
		err = setValueFromTexts(f.shape, v, list.GetSlice())
	} else {
		err = setValueFromText(f.shape, v, flag.Value.String())
	}
	if err != nil {
		l.addProblemf(o, "%v", err)
	}
}

// recordOverridingOrigin records that the value of a setting comes from o, and forgets the positions of the
// setting and its parts in the file.
func (l *loader) recordOverridingOrigin(o Origin) {
	l.origins[o.Key] = o
	maps.DeleteFunc(l.places, func(path string, _ place) bool {
		return path == o.Key || strings.HasPrefix(path, o.Key+"[") || strings.HasPrefix(path, o.Key+".")
	})
}
