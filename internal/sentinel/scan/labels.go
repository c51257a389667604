package scan

import "slices"

// Labels are the labels of one item. Those at the top of the resource win over
// those under metadata. They can be asked as a selector asks.
type Labels struct {
	own, meta []label // those under metadata are apart
	words     words
}

type label struct{ key, value []byte }

// Get returns the value of a label, and whether it is there.
func (l *Labels) Get(key string) (string, bool) {
	for _, list := range [...][]label{l.own, l.meta} {
		for _, found := range slices.Backward(list) { // of two values the last counts
			if string(found.key) == key {
				return l.words.intern(found.value), true
			}
		}
	}
	return "", false
}

// words are texts that come again and again, such as phases and the values of
// labels that are selected by: each is allocated once.
type words map[string]string

// maxWords and maxWord, in bytes, bound what is kept; a fleet where every
// resource has a word of its own pays for a string each time instead. A value
// of a label has 63 bytes at most.
const (
	maxWords = 1 << 12
	maxWord  = 64
)

func (w words) intern(b []byte) string {
	if s, ok := w[string(b)]; ok {
		return s
	}
	s := string(b)
	if len(w) < maxWords && len(b) <= maxWord {
		w[s] = s
	}
	return s
}
