package hyperfleettest

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A page is one page of a list.
type page[T any] struct {
	Items []T `json:"items"`
	Page  int `json:"page"`
	Size  int `json:"size"`
	Total int `json:"total"`
}

// handleListResources serves the resources of a kind.
func (s *Server) handleListResources(k Kind, parentPlural string) func(*http.Request) answer {
	return func(r *http.Request) answer {
		parent := r.PathValue("parent")
		if parentPlural != "" && s.resources[parent] == nil {
			return newNotFoundAnswer(parentPlural, parent)
		}
		q := r.URL.Query()
		number, a := parseQueryInteger(q, "page", 1, 100_000)
		if a != nil {
			return *a
		}
		sizeName, order := "size", q.Get("order")
		if s.cfg.OldParameters {
			sizeName, order = "pageSize", strings.TrimSpace(q.Get("orderBy")+" "+q.Get("order"))
			if q.Get("orderBy") == "" {
				order = ""
			}
		}
		size, a := parseQueryInteger(q, sizeName, 20, s.cfg.MaxSize)
		if a != nil {
			return *a
		}
		found, a := s.findMatchingResources(k, r, order)
		if a != nil {
			return *a
		}
		from := min((number-1)*size, len(found))
		p := page[wire]{Items: []wire{}, Page: number, Total: len(found)}
		for _, r := range found[from:min(from+size, len(found))] {
			p.Items = append(p.Items, s.buildWireResource(r))
		}
		p.Size = len(p.Items)
		return answer{http.StatusOK, p}
	}
}

// findMatchingResources returns the resources of a list, in its order.
func (s *Server) findMatchingResources(k Kind, r *http.Request, order string) (matching []*resource, badRequest *answer) {
	q := r.URL.Query()
	found := s.listResourcesNewestFirst(k, r.PathValue("parent"))
	if !s.cfg.IgnoreSearch {
		match, err := parseSearch(q.Get("search"))
		if err != nil {
			a := newErrorAnswer(http.StatusBadRequest, "Failed to parse search query: "+err.Error())
			return nil, &a
		}
		found = slices.DeleteFunc(found, func(r *resource) bool { return match != nil && match(s, r) != isTrue })
	}
	if s.cfg.Labels {
		found = slices.DeleteFunc(found, func(r *resource) bool { return !hasLabels(r, q.Get("labels")) })
	}
	if s.cfg.IgnoreOrder || order == "" {
		return found, nil
	}
	return found, sortByFields(found, order)
}

// parseQueryInteger reads a numeric parameter from 1 to maximum.
func parseQueryInteger(q url.Values, name string, fallback, maximum int) (value int, badRequest *answer) {
	text := q.Get(name)
	if text == "" {
		return min(fallback, maximum), nil
	}
	n, err := strconv.Atoi(text)
	var constraint, message string
	switch {
	case err != nil:
		constraint, message = "type", name+" must be an integer"
	case n < 1:
		constraint, message = "min", name+" must be at least 1"
	case n > maximum:
		constraint, message = "max", name+" must be at most "+strconv.Itoa(maximum)
	default:
		return n, nil
	}
	a := newErrorAnswer(
		http.StatusBadRequest,
		"Invalid query parameter",
		fieldError{Field: name, Constraint: constraint, Message: message, Value: text},
	)
	return 0, &a
}

func hasLabels(r *resource, labelPairs string) bool {
	for pair := range strings.SplitSeq(labelPairs, ",") {
		if k, v, ok := strings.Cut(pair, "="); ok && r.labels[k] != v {
			return false
		}
	}
	return true
}

// sortByFields sorts by fields, each with its direction.
func sortByFields(list []*resource, order string) (badRequest *answer) {
	var by []func(a, b *resource) int
	for part := range strings.SplitSeq(order, ",") {
		name, direction, _ := strings.Cut(strings.TrimSpace(part), " ")
		compare := map[string]func(a, b *resource) int{
			"id":           func(a, b *resource) int { return cmp.Compare(a.id, b.id) },
			"name":         func(a, b *resource) int { return cmp.Compare(a.name, b.name) },
			"generation":   func(a, b *resource) int { return cmp.Compare(a.generation, b.generation) },
			"created_time": func(a, b *resource) int { return a.created.Compare(b.created) },
			"updated_time": func(a, b *resource) int { return a.updated.Compare(b.updated) },
		}[name]
		direction = strings.ToLower(strings.TrimSpace(direction))
		if compare == nil || direction != "" && direction != "asc" && direction != "desc" {
			a := newErrorAnswer(http.StatusBadRequest, "Invalid order "+strconv.Quote(part))
			return &a
		}
		by = append(by, func(a, b *resource) int {
			if direction == "desc" {
				a, b = b, a
			}
			return compare(a, b)
		})
	}
	slices.SortStableFunc(list, func(a, b *resource) int {
		for _, compare := range by {
			if c := compare(a, b); c != 0 {
				return c
			}
		}
		return 0
	})
	return nil
}

// getColumnValue returns the value of a field in a search, and whether it is null.
func (s *Server) getColumnValue(r *resource, path string) (value any, null, known bool) {
	switch path {
	case "id":
		return r.id, false, true
	case "name":
		return r.name, false, true
	case "kind":
		return r.kind.Name, false, true
	case "href":
		return s.buildHref(r), false, true
	case "generation":
		return float64(r.generation), false, true
	case "created_time":
		return r.created, false, true
	case "updated_time":
		return r.updated, false, true
	case "deleted_time":
		if r.deleted == nil {
			return time.Time{}, true, true
		}
		return *r.deleted, false, true
	}
	if key, ok := strings.CutPrefix(path, "labels."); ok {
		v, has := r.labels[key]
		return v, !has, true
	}
	if rest, ok := strings.CutPrefix(path, "status.conditions."); ok {
		kind, field, _ := strings.Cut(rest, ".")
		return r.getConditionColumn(kind, field)
	}
	return nil, true, false
}

func (r *resource) getConditionColumn(kind, field string) (value any, null, known bool) {
	var found condition
	for _, c := range r.listConditions() {
		if c.Type == kind {
			found = c
		}
	}
	switch field {
	case "":
		value = found.Status
	case "last_updated_time":
		value = found.LastUpdatedTime
	case "last_transition_time":
		value = found.LastTransitionTime
	case "observed_generation":
		value = float64(found.ObservedGeneration)
	default:
		return nil, true, false
	}
	return value, found.Type == "", true
}
