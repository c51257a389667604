package settings

// An OrderedMap is a mapping of the configuration file that keeps its order and its positions. It
// is for settings with user-defined keys whose values are checked later, when an error must still
// report the position.
type OrderedMap []MapEntry

// A MapEntry is one key of an OrderedMap with a text or a mapping.
type MapEntry struct {
	// Key is the key as written, with its case.
	Key string

	// Value is the text, if Map is nil.
	Value string

	// Map is the nested mapping, not nil if the value is one.
	Map OrderedMap

	// Line and Column are the position of the value, counted from 1, and 0 if it does not come from
	// a file. A quoted value begins at its quote.
	Line, Column int
}

// Get returns the entry of a key at this level.
func (m OrderedMap) Get(key string) (MapEntry, bool) {
	for _, e := range m {
		if e.Key == key {
			return e, true
		}
	}
	return MapEntry{}, false
}
