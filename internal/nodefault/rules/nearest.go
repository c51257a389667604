package rules

import (
	"fmt"
	"strings"
)

// suggestName is what to say of a name that is not known, if one of those that are
// is close to it.
func suggestName(text string, known []string) string {
	if best := nearestName(text, known); best != "" {
		return fmt.Sprintf("; did you mean %q?", best)
	}
	return ""
}

// nearestName is the known name that was probably meant, or "". Case does not
// count; beyond that, a third of the letters may be wrong, but no more than
// three.
func nearestName(text string, known []string) string {
	const longest = 64 // no name is; and the cost is quadratic
	if len(text) > longest {
		return ""
	}
	folded := strings.ToLower(text)
	best, fewest := "", min(3, len(folded)/3)+1
	for _, name := range known {
		if d := editDistance(folded, strings.ToLower(name)); d < fewest {
			best, fewest = name, d
		}
	}
	return best
}

// editDistance counts the bytes to insert, delete or change to make b of a.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := before
			if a[i] != b[j] {
				change++
			}
			before = row[j+1]
			row[j+1] = min(change, before+1, row[j]+1)
		}
	}
	return row[len(b)]
}
