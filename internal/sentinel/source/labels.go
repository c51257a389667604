package source

import "slices"

// Labels holds the labels of one item. Those at the top of the resource take precedence over those
// under metadata. A selector can query them.
type Labels struct {
	own, meta []label // those under metadata are separate
	words     internedWords
}

type label struct{ key, value []byte }

// Get returns the value of a label, and whether it exists.
func (l *Labels) Get(key string) (value string, exists bool) {
	for _, list := range [...][]label{l.own, l.meta} {
		for _, found := range slices.Backward(list) { // the last of duplicate values counts
			if string(found.key) == key {
				return l.words.internString(found.value), true
			}
		}
	}
	return "", false
}

// internedWords holds frequent texts, such as phases and selected label values. Each is allocated
// once.
type internedWords map[string]string

// maxInternedWords and maxInternedWord, in bytes, limit the stored texts. A fleet in which every
// resource has a different text allocates a string for each. A label value has at most 63 bytes.
const (
	maxInternedWords = 1 << 12
	maxInternedWord  = 64
)

func (w internedWords) internString(text []byte) string {
	if s, ok := w[string(text)]; ok {
		return s
	}
	s := string(text)
	if len(w) < maxInternedWords && len(text) <= maxInternedWord {
		w[s] = s
	}
	return s
}
