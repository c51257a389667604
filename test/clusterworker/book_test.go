package clusterworker

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// A book is what happened in a test, in the order in which it was noted.
type book struct {
	began time.Time

	mu       sync.Mutex
	lines    []line
	passages []passage
	breaches []breach
}

// A line is about a cluster or a Shoot, or about all if it names none.
type line struct {
	at    time.Duration
	about string
	text  string
}

// A passage is a request that writes, from when the gate sent it on until the
// garden had answered it, whatever had become of the process that sent it.
type passage struct {
	by         sender
	method     string
	shoot      string
	cluster    string // of an apply
	generation int64  // of an apply
	from, to   time.Time
	left       time.Time // when its sender gave it up, zero if it waited for the answer
	status     int       // 0 if the garden gave no answer
	uid        string    // of the Shoot, if the answer says it
	late       bool      // the gate kept it for longer than a lease
}

func (p passage) String() string {
	return fmt.Sprintf("%s %s of generation %d by %s, answered %d", p.method, p.shoot, p.generation, p.by, p.status)
}

// wrote is whether the garden took it.
func (p passage) wrote() bool { return p.status >= 200 && p.status < 300 }

// A breach is something that must never be.
type breach struct {
	cluster, shoot string
	text           string
}

func newBook() *book { return &book{began: time.Now()} }

// note takes something down about a cluster or a Shoot, or about all.
func (b *book) note(about, format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, line{time.Since(b.began), about, fmt.Sprintf(format, args...)})
}

func (b *book) passed(p passage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.passages = append(b.passages, p)
}

// wrong notes a breach.
func (b *book) wrong(cluster, shoot, format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.breaches = append(b.breaches, breach{cluster, shoot, fmt.Sprintf("%s: ", time.Since(b.began).Round(time.Millisecond)) + fmt.Sprintf(format, args...)})
}

// found are the breaches.
func (b *book) found() []breach {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.breaches)
}

// writes are the passages that a test asks for.
func (b *book) writes(keep func(passage) bool) []passage {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []passage
	for _, p := range b.passages {
		if keep(p) {
			list = append(list, p)
		}
	}
	return list
}

// history is what was noted about a cluster and its Shoot, and about all.
func (b *book) history(cluster, shoot string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out strings.Builder
	for _, l := range b.lines {
		if l.about == "" || l.about == cluster || l.about == shoot {
			fmt.Fprintf(&out, "%9.3fs  %s\n", l.at.Seconds(), l.text)
		}
	}
	return out.String()
}
