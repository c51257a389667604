package settings

// An OrderedMap is a mapping of the configuration file that keeps its order
// and its places, for settings whose keys are the user's own and whose values
// are looked at later, when an error must still say where the text stands.
type OrderedMap []MapEntry

// A MapEntry is one key of an OrderedMap with either a text or a mapping.
type MapEntry struct {
	// Key is as written; its case is kept.
	Key string

	// Value is the text, if Map is nil.
	Value string

	// Map is the nested mapping, not nil if the value is one.
	Map OrderedMap

	// Line and Column are where the value begins, counted from 1, and 0 if it
	// does not come from a file. A quoted value begins at its quote.
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
