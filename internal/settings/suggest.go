package settings

import "strings"

// Nearest returns the candidate that text probably means, or "". It ignores case, dashes and
// underscores. Up to a third of the letters may be wrong, but no more than three.
func Nearest(text string, candidates []string) string {
	const longest = 64 // no name is longer, and the cost is quadratic
	if len(text) > longest {
		return ""
	}
	folded := normalizeKey(text)
	best, fewest := "", min(3, len(folded)/3)+1
	for _, c := range candidates {
		if d := editDistance(folded, normalizeKey(c)); d < fewest {
			best, fewest = c, d
		}
	}
	return best
}

func normalizeKey(s string) string {
	return strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(s))
}

// editDistance returns the number of bytes to insert, delete, change, or swap with their neighbour
// to turn a into b.
func editDistance(a, b string) int {
	rows := [3][]int{make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)}
	before, last, row := rows[0], rows[1], rows[2]
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := last[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			row[j] = min(change, last[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
