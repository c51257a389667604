package fleetapi

import (
	"errors"
	"maps"
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
	// maxPageBytes limits the size of a page, which is built in memory. A page may exceed it by one row.
	maxPageBytes = 8 << 20
)

// A listParameters is a parsed list request.
type listParameters struct {
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
	fields fieldSelection

	// selection holds the selecting parameters of the client in canonical form.
	selection []string
}

func (l *listParameters) isNumbered() bool { return l.page > 0 }

// computeQueryDigest returns the digest of the listed rows and their order. It is specific to a subject;
// "" covers all subjects that see the same rows.
func (l *listParameters) computeQueryDigest(subject string) rest.QueryDigest {
	size := ""
	if !l.keyset {
		size = strconv.Itoa(l.size)
	}
	return rest.DigestQuery(append([]string{
		l.kind.name, l.query.ParentID, l.scope.Tenant, strconv.FormatBool(l.scope.All), subject, size,
	}, l.selection...)...)
}

func parseListParameters(k *kind, query url.Values) (*listParameters, error) {
	err := checkQueryParameters(query, "labels", "search", "fields", "page", "size", "pageSize", "order", "orderBy",
		"limit", "continue", "ids", "changed_since", "watch")
	if err != nil {
		return nil, err
	}
	l := &listParameters{kind: k, query: Query{Kind: k.name}}
	if query.Has("ids") {
		return l, l.parseIDsParameter(query)
	}
	if l.fields, err = parseFieldsParameter(query["fields"]); err != nil {
		return nil, err
	}
	if l.query.Labels, err = parseLabelSelector(query.Get("labels")); err != nil {
		return nil, err
	}
	if l.query.Search, err = search.ParseQuery(query.Get("search")); err != nil {
		return nil, rest.NewQueryError("search", "format", query.Get("search"), "is invalid: %s", err)
	}
	l.keyset = query.Has("limit") || query.Has("continue")
	if l.keyset {
		err = l.parseKeysetPaging(query)
	} else {
		err = l.parseNumberedPaging(query)
	}
	l.selection = []string{l.query.Labels.String(), query.Get("search")}
	for _, t := range l.query.OrderTermsWithID() {
		l.selection = append(l.selection, search.Column{Field: t.Column}.String(), strconv.FormatBool(t.Desc))
	}
	if l.fields != nil {
		l.selection = append(l.selection, l.fields.String())
	}
	return l, err
}

// parseIDsParameter parses the ids of a request for given resources. Malformed ids are omitted, like ids
// that do not exist.
func (l *listParameters) parseIDsParameter(query url.Values) error {
	for name := range query {
		if name != "ids" && name != "strict" {
			return rest.NewQueryError(name, "format", query.Get(name), "cannot be combined with ids")
		}
	}
	names := strings.Split(query.Get("ids"), ",")
	if len(names) > maxIDs {
		return rest.NewQueryError("ids", "max", "", "has %d ids; at most %d are allowed", len(names), maxIDs)
	}
	if query.Get("ids") == "" {
		return rest.NewQueryError("ids", "min", "", "is empty; give at least one id")
	}
	l.ids, l.query.IDs = true, []string{}
	for _, name := range names {
		if id, err := parseResourceID(l.kind, name); err == nil {
			l.query.IDs = append(l.query.IDs, id)
		}
	}
	l.selection = append([]string{"ids"}, l.query.IDs...)
	return nil
}

// checkQueryParameters refuses a repeated parameter and, if the client requests strictness, an unknown
// one. Without strictness it ignores unknown parameters, as the public API does.
func checkQueryParameters(query url.Values, allowedIfStrict ...string) error {
	allowedIfStrict = append(allowedIfStrict, "strict")
	strict := false
	if query.Has("strict") {
		var err error
		if strict, err = strconv.ParseBool(query.Get("strict")); err != nil {
			return rest.NewQueryError("strict", "format", query.Get("strict"), "must be true or false")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		known, repeatable := slices.Contains(allowedIfStrict, name), name == "order" || name == "fields"
		if !known && strict {
			return rest.NewQueryError(name, "enum", query.Get(name), "is not a known parameter; use one of %s", strings.Join(allowedIfStrict, ", "))
		}
		if known && !repeatable && len(query[name]) > 1 {
			return rest.NewQueryError(name, "unique", query.Get(name), "is given %d times; give it once", len(query[name]))
		}
	}
	return nil
}

func parseLabelSelector(text string) (selector.Selector, error) {
	if n := utf8.RuneCountInString(text); n > maxSelector {
		return selector.Selector{}, rest.NewQueryError("labels", "max_length", "", "has %d characters; at most %d are allowed", n, maxSelector)
	}
	sel, err := selector.Parse(text)
	if err != nil {
		return sel, rest.NewQueryError("labels", "format", text, "is not a label selector: %s", err)
	}
	return sel, nil
}

func (l *listParameters) parseKeysetPaging(query url.Values) error {
	for _, name := range []string{"page", "size", "pageSize", "orderBy"} {
		if query.Has(name) {
			return rest.NewQueryError(name, "format", query.Get(name), "selects paging by number and cannot be combined with limit or continue")
		}
	}
	var err error
	if l.query.Order, err = parseOrderTerms(query["order"], ""); err != nil {
		return err
	}
	if l.size, err = parsePositiveNumber(query, "limit", maxSize, defaultSize); err != nil {
		return err
	}
	l.token = query.Get("continue")
	if query.Has("continue") && l.token == "" {
		return rest.NewQueryError("continue", "format", "", "is empty; leave it out to start from the first page")
	}
	return nil
}

// parseContinueToken returns the position that the token names. Without a token it returns the zero value.
func (l *listParameters) parseContinueToken() (after Position, err error) {
	if l.token == "" {
		return Position{}, nil
	}
	if len(l.query.Order) == 0 {
		id, err := rest.ParseIDPageToken(l.computeQueryDigest(""), l.token)
		return Position{ID: id}, toTokenProblem(l.token, err)
	}
	encoded, err := rest.ParseEncodedPositionPageToken(l.computeQueryDigest(""), l.token)
	if err != nil {
		return Position{}, toTokenProblem(l.token, err)
	}
	after, ok := decodePosition(encoded, l.query.Order)
	if !ok || after.ID == "" {
		err = rest.ErrMalformedToken
	}
	return after, toTokenProblem(l.token, err)
}

func (l *listParameters) newContinueToken(after Position) (string, error) {
	if len(l.query.Order) == 0 {
		return rest.NewIDPageToken(l.computeQueryDigest(""), after.ID)
	}
	return rest.NewEncodedPositionPageToken(l.computeQueryDigest(""), appendEncodedPosition(nil, after)), nil
}

// toTokenProblem converts a token error into a problem, nil into nil.
func toTokenProblem(token string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, rest.ErrForeignToken):
		return rest.NewQueryError(
			"continue",
			"format",
			token,
			"belongs to another query; repeat the parameters of that query, or start again without it",
		)
	}
	return rest.NewQueryError("continue", "format", token, "is not a token of this API; start again without it")
}

func (l *listParameters) parseNumberedPaging(query url.Values) error {
	var err error
	if l.page, l.size, err = parsePageAndSize(query); err != nil {
		return err
	}
	terms := query["order"]
	if query.Has("orderBy") { // orderBy has the column, and order the direction
		terms = []string{query.Get("orderBy") + " " + query.Get("order")}
	}
	l.query.Order, err = parseOrderTerms(terms, "created_time desc")
	return err
}

// parsePageAndSize parses page and size. Older clients call the size pageSize; a client that supports both
// APIs sends both.
func parsePageAndSize(query url.Values) (page, size int, err error) {
	name := "size"
	if !query.Has(name) && query.Has("pageSize") {
		name = "pageSize"
	}
	if query.Has("size") && query.Has("pageSize") && query.Get("size") != query.Get("pageSize") {
		return 0, 0, rest.NewQueryError("pageSize", "format", query.Get("pageSize"), "differs from size; give only one of the two")
	}
	page, err = parsePositiveNumber(query, "page", maxPage, 1)
	if err != nil {
		return 0, 0, err
	}
	size, err = parsePositiveNumber(query, name, maxSize, defaultSize)
	return page, size, err
}

// parsePositiveNumber parses a number of at least 1.
func parsePositiveNumber(query url.Values, name string, maximum, fallback int) (number int, err error) {
	if !query.Has(name) {
		return fallback, nil
	}
	text := query.Get(name)
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
