package scan

// Labels are the labels of one item. Those at the top of the resource win over
// those under metadata. They can be asked as a selector asks.
type Labels struct {
	list  []label
	words words
}

type label struct{ key, value []byte }

// Get returns the value of a label, and whether it is there.
func (l *Labels) Get(key string) (string, bool) {
	for i := range l.list {
		if string(l.list[i].key) == key {
			return l.words.of(l.list[i].value), true
		}
	}
	return "", false
}

// words are texts that come again and again, such as phases and the values of
// labels that are selected by: each is allocated once.
type words map[string]string

// maxWords bounds what is kept; a fleet where every resource has a word of its
// own pays for a string each time instead.
const maxWords = 1 << 12

func (w words) of(b []byte) string {
	if s, ok := w[string(b)]; ok {
		return s
	}
	s := string(b)
	if len(w) < maxWords {
		w[s] = s
	}
	return s
}
