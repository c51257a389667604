package processnode

import (
	"cmp"
	"slices"
	"strings"
)

// A PathMove is a mount path in a container and its real path.
type PathMove struct{ From, To string }

// RewritePaths replaces mount paths by real paths in a command line or an environment, for
// systems without mounts. Only whole path elements match: /etc/app is found in
// --config=/etc/app/x.yaml and not in /etc/apple or /my/etc/app. Paths that are built
// into a program cannot be replaced.
func RewritePaths(text string, moves []PathMove) string {
	longest := slices.Clone(moves)
	slices.SortFunc(longest, func(a, b PathMove) int { return cmp.Compare(len(b.From), len(a.From)) })
	var out strings.Builder
	for i := 0; i < len(text); {
		if m, ok := findMoveAt(text, i, longest); ok {
			out.WriteString(m.To)
			i += len(m.From)
			continue
		}
		out.WriteByte(text[i])
		i++
	}
	return out.String()
}

func findMoveAt(text string, i int, moves []PathMove) (PathMove, bool) {
	if i > 0 && isNameChar(text[i-1]) {
		return PathMove{}, false
	}
	for _, m := range moves {
		rest, ok := strings.CutPrefix(text[i:], m.From)
		if ok && (rest == "" || !isNameChar(rest[0]) || rest[0] == '/') {
			return m, true
		}
	}
	return PathMove{}, false
}

// isNameChar reports whether a byte continues a path.
func isNameChar(c byte) bool {
	return c == '/' || c == '-' || c == '_' || c == '.' ||
		'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}
