package timeline

import (
	"encoding/json"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
	"github.com/fleetloop/fleetloop/internal/fleetapi/rest"
)

const (
	defaultLimit = 100
	maxLimit     = 1000
	// pageBytes limits the size of a page, which is built in memory; clients read pages up to a
	// multiple of it. Only events with long texts make a page that ends before its limit.
	pageBytes = 8 << 20
)

// Get lists change events, or streams them to a client that accepts a stream.
func (t *Timeline) Get(w http.ResponseWriter, r *http.Request, who auth.Principal) error {
	scope, err := readScope(who)
	if err != nil {
		return err
	}
	if wantsStream(r) {
		return t.streamEvents(w, r, scope, who)
	}
	return t.listEvents(w, r, scope)
}

// wantsStream reports whether the client prefers a stream.
func wantsStream(r *http.Request) bool {
	for _, accept := range r.Header.Values("Accept") {
		for part := range strings.SplitSeq(accept, ",") {
			media, params, err := mime.ParseMediaType(part)
			if err != nil {
				continue
			}
			q, err := strconv.ParseFloat(params["q"], 64)
			if media == "text/event-stream" && (err != nil || q > 0) {
				return true
			}
		}
	}
	return false
}

// checkParameters refuses unknown parameters, if the client is strict.
func checkParameters(v url.Values, known ...string) error {
	strict, err := strconv.ParseBool(v.Get("strict"))
	if v.Has("strict") && err != nil {
		return rest.NewQueryError("strict", "format", v.Get("strict"), "must be true or false")
	}
	if !strict {
		return nil
	}
	for name := range v {
		found := name == "strict"
		for _, k := range known {
			found = found || name == k
		}
		if !found {
			return rest.NewQueryError(name, "enum", v.Get(name), "is not a known parameter; use one of %s", strings.Join(known, ", "))
		}
	}
	return nil
}

// A listing is a parsed list request.
type listing struct {
	scope Scope
	query Query
	// digest identifies the query by the parameters as the client wrote them: an age is another
	// time on the next page.
	digest rest.QueryDigest
}

func (t *Timeline) parseListing(r *http.Request, scope Scope, now time.Time) (*listing, error) {
	v := r.URL.Query()
	if err := checkParameters(v, filterParameters("since", "until", "limit", "continue")...); err != nil {
		return nil, err
	}
	if v.Has("after") {
		return nil, rest.NewQueryError("after", "format", v.Get("after"), "is only for streams; send Accept: text/event-stream, or use continue to page")
	}
	filter, err := parseFilter(v)
	if err != nil {
		return nil, err
	}
	l := &listing{scope: scope, query: Query{Filter: filter, NotBefore: now.Add(-t.retention), Limit: defaultLimit}}
	if l.query.Since, err = parseTime(v, "since", now); err != nil {
		return nil, err
	}
	if l.query.Until, err = parseTime(v, "until", now); err != nil {
		return nil, err
	}
	if text := v.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxLimit {
			return nil, rest.NewQueryError("limit", "format", text, "must be from 1 to %d", maxLimit)
		}
		l.query.Limit = n
	}
	l.digest = rest.DigestQuery(append(filter.canonicalParts(), "changes", scope.Tenant, strconv.FormatBool(scope.All), v.Get("since"), v.Get("until"))...)
	return l, l.parseCursor(v.Get("continue"))
}

func (l *listing) parseCursor(text string) error {
	if text == "" {
		return nil
	}
	at, seq, err := rest.ParseNumberedPageToken(l.digest, text)
	if err != nil {
		return rest.NewQueryError("continue", "format", text, "is %s; use continue of the previous page and repeat all other parameters except limit", err)
	}
	l.query.After = Place{At: at, Seq: seq}
	return nil
}

// listEvents answers with a page.
func (t *Timeline) listEvents(w http.ResponseWriter, r *http.Request, scope Scope) error {
	l, err := t.parseListing(r, scope, time.Now())
	if err != nil {
		return err
	}
	q := l.query
	q.Limit++ // the extra row shows whether there is another page
	b := []byte(`{"items":[`)
	rows, more := 0, false
	var last Place
	live, err := t.store.List(r.Context(), scope, q, func(row *Row) error {
		if more = more || rows == l.query.Limit || len(b) > pageBytes; more {
			return nil
		}
		if rows++; rows > 1 {
			b = append(b, ',')
		}
		last = Place{row.At, row.Seq}
		b, err = appendRow(b, row)
		return err
	})
	if err != nil {
		return problemOf(err)
	}
	b = append(b, ']')
	if more {
		b = append(append(append(b, `,"continue":"`...), rest.NewNumberedPageToken(l.digest, last.At, last.Seq)...), '"')
	}
	b = append(append(append(b, `,"cursor":"`...), live.String()...), `"}`...)
	writeJSON(w, http.StatusOK, b)
	return nil
}

// appendRow appends an event in the form of a v1.ChangeEvent: the fields that the API recorded,
// followed by the unchanged payload.
func appendRow(b []byte, row *Row) ([]byte, error) {
	head, err := json.Marshal(struct {
		Actor      string    `json:"actor"`
		RecordedAt time.Time `json:"recordedAt"`
		RecordedBy string    `json:"recordedBy,omitempty"`
		Tenant     string    `json:"tenant,omitempty"`
	}{row.Actor, row.RecordedAt.UTC(), row.RecordedBy, row.Tenant})
	if err != nil {
		return b, err
	}
	b = append(b, head[:len(head)-1]...)
	b = append(b, ',')
	return append(b, row.Payload[1:]...), nil // never {}: an event has an action
}
