package source

import (
	"strings"

	"github.com/fleetloop/fleetloop/internal/selector"
)

// maxSearchLength is the maximum length of a search expression. The remainder is reserved for the
// id after which a page starts.
const maxSearchLength = 4096 - 512

// translateSelector translates a selector into the search language of the public API, as far as
// possible. The language can express that a label has a value, or one of several. It has no syntax
// for keys with a hyphen, dot or slash, and in it a missing label is not unequal to any value.
// translateSelector omits unsupported parts, so that the search never selects less than the
// selector, and complete is then false. The empty search selects everything.
func translateSelector(sel selector.Selector) (search string, complete bool) {
	complete = true
	for _, requirement := range sel.Requirements() {
		term, supported := translateRequirement(requirement)
		extended := joinAnd(search, term)
		if !supported || len(extended) > maxSearchLength {
			complete = false
			continue
		}
		search = extended
	}
	return search, complete
}

// translateRequirement translates one requirement of a selector, if the language supports it.
func translateRequirement(r selector.Requirement) (term string, supported bool) {
	if strings.ContainsAny(r.Key, "-./") {
		return "", false
	}
	switch r.Op {
	case selector.Equals:
		return "labels." + r.Key + "=" + quoteSearch(r.Values[0]), true
	case selector.In:
		quoted := make([]string, len(r.Values))
		for i, v := range r.Values {
			quoted[i] = quoteSearch(v)
		}
		return "labels." + r.Key + " in [" + strings.Join(quoted, ",") + "]", true
	case selector.NotEquals, selector.NotIn, selector.Exists, selector.NotExists: // not supported
	}
	return "", false
}

func searchIDsAfter(id string) string { return "id > " + quoteSearch(id) }

// joinAnd returns the search for both conditions. The first may be empty.
func joinAnd(search, condition string) string {
	if search == "" {
		return condition
	}
	return search + " and " + condition
}

func quoteSearch(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
