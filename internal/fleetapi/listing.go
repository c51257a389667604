package fleetapi

import (
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/fleetloop/fleetloop/internal/fleetapi/rest"
	"github.com/fleetloop/fleetloop/internal/fleetapi/search"
	"github.com/fleetloop/fleetloop/internal/selector"
)

// Bounds of a list request.
const (
	defaultSize = 20
	maxSize     = 500
	maxPage     = 100_000
	maxSelector = 4096
	maxIDs      = 100
	maxFields   = 64
)

// A listing is a parsed list request.
type listing struct {
	kind  *kind
	scope Scope
	query Query

	// ids reports whether the client names the resources; keyset, whether it pages by token.
	// Otherwise it pages by number, and page is not 0.
	ids    bool
	keyset bool
	token  string
	page   int
	size   int

	// fields are the shown fields of each resource, nil for all.
	fields fieldSet

	// selection holds the selecting parameters of the client in canonical form.
	selection []string
}

// queryDigest returns the digest of the listed rows and their order. It is specific to a subject;
// "" covers all subjects that see the same rows.
func (l *listing) queryDigest(subject string) rest.QueryDigest {
	size := ""
	if !l.keyset {
		size = strconv.Itoa(l.size)
	}
	return rest.DigestQuery(append([]string{
		l.kind.name, l.query.ParentID, l.scope.Tenant, strconv.FormatBool(l.scope.All), subject, size,
	}, l.selection...)...)
}

// parseListing parses the parameters of a list request.
func parseListing(k *kind, v url.Values) (*listing, error) {
	if err := checkParameters(v, "labels", "search", "fields", "page", "size", "pageSize", "order", "orderBy", "limit", "continue", "ids", "changed_since", "watch"); err != nil {
		return nil, err
	}
	l := &listing{kind: k, query: Query{Kind: k.name}}
	if v.Has("ids") {
		return l, l.parseIDs(v)
	}
	var err error
	if l.fields, err = parseFields(v["fields"]); err != nil {
		return nil, err
	}
	if l.query.Labels, err = parseSelector(v.Get("labels")); err != nil {
		return nil, err
	}
	if l.query.Search, err = search.Parse(v.Get("search")); err != nil {
		return nil, rest.NewQueryError("search", "format", v.Get("search"), "is invalid: %s", err)
	}
	l.keyset = v.Has("limit") || v.Has("continue")
	if l.keyset {
		err = l.parseKeysetPaging(v)
	} else {
		err = l.parseNumberedPaging(v)
	}
	l.selection = []string{l.query.Labels.String(), v.Get("search")}
	for _, t := range l.query.TotalOrder() {
		l.selection = append(l.selection, search.Column{Field: t.Column}.String(), strconv.FormatBool(t.Desc))
	}
	if l.fields != nil {
		l.selection = append(l.selection, l.fields.String())
	}
	return l, err
}

// parseIDs parses the ids of a request for given resources. Malformed ids are omitted, like ids
// that do not exist.
func (l *listing) parseIDs(v url.Values) error {
	for name := range v {
		if name != "ids" && name != "strict" {
			return rest.NewQueryError(name, "format", v.Get(name), "cannot be combined with ids")
		}
	}
	names := strings.Split(v.Get("ids"), ",")
	if len(names) > maxIDs {
		return rest.NewQueryError("ids", "max", "", "has %d ids; at most %d are allowed", len(names), maxIDs)
	}
	if v.Get("ids") == "" {
		return rest.NewQueryError("ids", "min", "", "is empty; give at least one id")
	}
	l.ids, l.query.IDs = true, []string{}
	for _, name := range names {
		if id, err := parseID(l.kind, name); err == nil {
			l.query.IDs = append(l.query.IDs, id)
		}
	}
	l.selection = append([]string{"ids"}, l.query.IDs...)
	return nil
}

// checkParameters refuses a repeated parameter and, if the client requests strictness, an unknown
// one. Without strictness it ignores unknown parameters, as the public API does.
func checkParameters(v url.Values, known ...string) error {
	known = append(known, "strict")
	strict := false
	if v.Has("strict") {
		var err error
		if strict, err = strconv.ParseBool(v.Get("strict")); err != nil {
			return rest.NewQueryError("strict", "format", v.Get("strict"), "must be true or false")
		}
	}
	names := make([]string, 0, len(v))
	for name := range v {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		switch {
		case !slices.Contains(known, name):
			if strict {
				return rest.NewQueryError(name, "enum", v.Get(name), "is not a known parameter; use one of %s", strings.Join(known, ", "))
			}
		case len(v[name]) > 1 && name != "order" && name != "fields":
			return rest.NewQueryError(name, "unique", v.Get(name), "is given %d times; give it once", len(v[name]))
		}
	}
	return nil
}

func parseSelector(s string) (selector.Selector, error) {
	if n := utf8.RuneCountInString(s); n > maxSelector {
		return selector.Selector{}, rest.NewQueryError("labels", "max_length", "", "has %d characters; at most %d are allowed", n, maxSelector)
	}
	sel, err := selector.Parse(s)
	if err != nil {
		return sel, rest.NewQueryError("labels", "format", s, "is not a label selector: %s", err)
	}
	return sel, nil
}

func (l *listing) parseKeysetPaging(v url.Values) error {
	for _, name := range []string{"page", "size", "pageSize", "orderBy"} {
		if v.Has(name) {
			return rest.NewQueryError(name, "format", v.Get(name), "selects paging by number and cannot be combined with limit or continue")
		}
	}
	var err error
	if l.query.Order, err = parseOrder(v["order"], ""); err != nil {
		return err
	}
	l.size, err = parseNumber(v, "limit", maxSize, defaultSize)
	if l.token = v.Get("continue"); err == nil && v.Has("continue") && l.token == "" {
		err = rest.NewQueryError("continue", "format", "", "is empty; leave it out to start from the first page")
	}
	return err
}

// parseContinueToken returns the position that the token names. Without a token it returns the zero value.
func (l *listing) parseContinueToken() (Position, error) {
	if l.token == "" {
		return Position{}, nil
	}
	if len(l.query.Order) == 0 {
		id, err := rest.ParsePageToken(l.queryDigest(""), l.token)
		return Position{ID: id}, explainTokenError(l.token, err)
	}
	at, err := rest.ParsePlacePageToken(l.queryDigest(""), l.token)
	p, ok := readPosition(at, l.query.Order)
	if err == nil && (!ok || p.ID == "") {
		err = rest.ErrMalformedToken
	}
	return p, explainTokenError(l.token, err)
}

// continueToken returns the token that continues the list after a position.
func (l *listing) continueToken(p Position) (string, error) {
	if len(l.query.Order) == 0 {
		return rest.NewPageToken(l.queryDigest(""), p.ID)
	}
	return rest.NewPlacePageToken(l.queryDigest(""), appendPosition(nil, p)), nil
}

// explainTokenError converts a token error into a problem, nil into nil.
func explainTokenError(token string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, rest.ErrForeignToken):
		return rest.NewQueryError("continue", "format", token, "belongs to another query; repeat the parameters of that query, or start again without it")
	}
	return rest.NewQueryError("continue", "format", token, "is not a token of this API; start again without it")
}

func (l *listing) parseNumberedPaging(v url.Values) error {
	var err error
	if l.page, l.size, err = parsePage(v); err != nil {
		return err
	}
	terms := v["order"]
	if v.Has("orderBy") { // orderBy has the column, and order the direction
		terms = []string{v.Get("orderBy") + " " + v.Get("order")}
	}
	l.query.Order, err = parseOrder(terms, "created_time desc")
	return err
}

// parsePage parses page and size. Older clients call the size pageSize; a client that supports both
// APIs sends both.
func parsePage(v url.Values) (page, size int, err error) {
	name := "size"
	if !v.Has(name) && v.Has("pageSize") {
		name = "pageSize"
	}
	if v.Has("size") && v.Has("pageSize") && v.Get("size") != v.Get("pageSize") {
		return 0, 0, rest.NewQueryError("pageSize", "format", v.Get("pageSize"), "differs from size; give only one of the two")
	}
	page, err = parseNumber(v, "page", maxPage, 1)
	if err != nil {
		return 0, 0, err
	}
	size, err = parseNumber(v, name, maxSize, defaultSize)
	return page, size, err
}

// parseNumber parses a number of at least 1.
func parseNumber(v url.Values, name string, maximum, fallback int) (int, error) {
	if !v.Has(name) {
		return fallback, nil
	}
	text := v.Get(name)
	n, err := strconv.Atoi(text)
	switch {
	case errors.Is(err, strconv.ErrRange) && !strings.HasPrefix(text, "-"), n > maximum:
		return 0, rest.NewQueryError(name, "max", text, "must be at most %d", maximum)
	case errors.Is(err, strconv.ErrRange), err == nil && n < 1:
		return 0, rest.NewQueryError(name, "min", text, "must be at least 1")
	case err != nil:
		return 0, rest.NewQueryError(name, "format", text, "must be a number from 1 to %d", maximum)
	}
	return n, nil
}
