// Package settings reads the configuration of a process into a struct: what
// the struct's tags give as default, over that a YAML file, over that the
// environment, over that flags.
//
// It is strict. An unknown key, a key given twice, a value of the wrong type
// or out of range is an error that names the key, where the value came from
// (file:line:column, the variable or the flag) and the nearest key there is.
// All errors are reported at once, one a line; a process that started has
// understood every word of its configuration. Secrets are never shown, not
// in errors either.
//
// A setting is an exported field with these tags; a field without a key is
// not a setting, and an embedded struct without one lends its fields to the
// struct around it:
//
//	key:"poll_interval"         its key in the file; nested structs nest
//	alias:"pollInterval"        other keys for it, by comma; giving two is an error
//	env:"SENTINEL_POLL"         its variable, or several by comma; an empty one counts as absent
//	flag:"poll-interval"        its flag, see AddFlags
//	default:"5s"                its value if nothing gives one, as in the environment
//	doc:"How often to poll."    what it means
//	validate:"gt=0"             rules of github.com/go-playground/validator
//	secret:"true"               hide it; a Secret is always hidden
//	file:"token_file"           key of the path of a file that holds the value;
//	                            each variable then has a twin with _FILE appended
//
// Settings may share a variable or a flag of one type; each then has its
// value.
//
// A field that is not zero when Load is called keeps its value as its
// default. Types are strings, Secret, booleans, numbers, time.Duration with a
// unit ("1m30s"), what implements encoding.TextUnmarshaler, pointers to
// these (nil is absent), structs, OrderedMap, and lists of, and maps from
// string to, any of these. Lists and maps of scalars are written as "a,b" and
// "k=v,l=w" in the environment and in flags; what holds a struct can only be
// given in the file. A list or a map that is given replaces the weaker one.
//
// A struct with tags that make no sense is a fault of the program: whatever
// reads the tags panics.
package settings

import (
	"fmt"
	"maps"
	"reflect"
	"strings"

	"github.com/spf13/pflag"
)

// Source is where the values come from, weakest first. The zero value gives
// the defaults alone.
type Source struct {
	// File is the path of a YAML file of at most 1 MiB, or empty for none.
	File string

	// FileData is the content of the file if it has been read already; File
	// is then only its name in errors.
	FileData []byte

	// Env looks up an environment variable, as OSEnv does. Nil is none.
	Env func(name string) (string, bool)

	// Flags are parsed flags, with those of AddFlags or others of the same
	// names among them. Only those that were given count. Nil is none.
	Flags *pflag.FlagSet
}

// Load fills cfg, a pointer to a struct, from src and validates it. The error
// joins one error for each thing that is wrong; cfg is then not to be used.
func Load(cfg any, src Source) (*Report, error) {
	root := structOf(cfg)
	l := &loader{
		src:     src,
		root:    readShape(root.Type()),
		origins: map[string]Origin{},
		places:  map[string]place{},
		bad:     map[string]bool{},
	}
	setDefaults(l.root, root)
	for f := range allSettings(l.root, root) {
		l.origins[f.path] = Origin{Key: f.path, Source: FromDefault}
	}
	if err := l.readFile(root); err != nil {
		return nil, err
	}
	for f, v := range allSettings(l.root, root) {
		l.readEnv(f, v)
		l.readFlag(f, v)
	}
	l.validateRules(root)
	if err := l.problems.joinErrors(); err != nil {
		return nil, err
	}
	return &Report{file: src.File, root: l.root, value: root, origins: l.origins, places: l.places}, nil
}

// structOf is the struct that cfg points to.
func structOf(cfg any) reflect.Value {
	v := reflect.ValueOf(cfg)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		panic(fmt.Sprintf("settings: want a pointer to a struct, not a %T", cfg))
	}
	return v.Elem()
}

// A place is where a value begins in the file; zero is not in the file.
type place struct{ line, column int }

// A loader is the work of one Load.
type loader struct {
	src      Source
	root     *shape
	origins  map[string]Origin // of each setting, by its path
	places   map[string]place  // of each value in the file, by its path
	bad      map[string]bool   // paths that have a problem already
	nodes    int               // how many values of the file were visited
	depth    int               // how deep the one being visited is
	problems problems
}

// setDefaults gives every zero setting below s the default of its tag.
func setDefaults(s *shape, v reflect.Value) {
	for f, fv := range allSettings(s, v) {
		if f.hasDefault && fv.IsZero() {
			if err := setText(f.shape, fv, f.def); err != nil {
				panic(fmt.Sprintf("settings: default of %q: %v", f.path, err))
			}
		}
	}
}

// readEnv takes the value of a setting from its variables.
func (l *loader) readEnv(f *field, v reflect.Value) {
	if l.src.Env == nil {
		return
	}
	given := ""
	take := func(name string, set func(text string) error) {
		text, ok := l.src.Env(name)
		if !ok || text == "" {
			return
		}
		o := Origin{Key: f.path, Source: FromEnv, Name: name}
		if given != "" {
			l.addProblemf(o, "is also set by %s; unset one of them", given)
			return
		}
		given = name
		l.noteOverride(o)
		if err := set(text); err != nil {
			l.addProblemf(o, "%v", err)
		}
	}
	for _, name := range f.env {
		take(name, func(text string) error { return setText(f.shape, v, text) })
		if f.fileKey != "" {
			take(name+"_FILE", func(path string) error { return setFromFile(f.shape, v, path) })
		}
	}
}

// readFlag takes the value of a setting from its flag.
func (l *loader) readFlag(f *field, v reflect.Value) {
	if f.flag == "" || l.src.Flags == nil {
		return
	}
	flag := l.src.Flags.Lookup(f.flag)
	if flag == nil || !flag.Changed {
		return
	}
	o := Origin{Key: f.path, Source: FromFlag, Name: "--" + f.flag}
	l.noteOverride(o)
	var err error
	if list, ok := flag.Value.(pflag.SliceValue); ok {
		err = setTexts(f.shape, v, list.GetSlice())
	} else {
		err = setText(f.shape, v, flag.Value.String())
	}
	if err != nil {
		l.addProblemf(o, "%v", err)
	}
}

// noteOverride notes that a setting has its value from o, whatever the file said.
func (l *loader) noteOverride(o Origin) {
	l.origins[o.Key] = o
	maps.DeleteFunc(l.places, func(path string, _ place) bool {
		rest, ok := strings.CutPrefix(path, o.Key)
		return ok && (rest == "" || rest[0] == '[' || rest[0] == '.')
	})
}
