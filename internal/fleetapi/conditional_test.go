package fleetapi_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// ask reads a path with If-None-Match for the tags.
func (f *fixture) ask(path string, tags ...string) *answer {
	f.Helper()
	header := http.Header{}
	if len(tags) > 0 {
		header["If-None-Match"] = tags
	}
	a := f.doWith(header, "GET", path, nil)
	switch tag := a.header.Get("Etag"); {
	case len(tag) < 3 || tag[0] != '"' || tag[len(tag)-1] != '"':
		f.Errorf("%s has the tag %q", path, tag)
	case a.status == http.StatusNotModified && len(a.body) > 0:
		f.Errorf("%s has a body: %s", path, a.body)
	}
	return a
}

func (f *fixture) tag(path string) string {
	f.Helper()
	return f.ask(path).want(http.StatusOK).header.Get("Etag")
}

func (f *fixture) connect() *pgx.Conn {
	f.Helper()
	conn, err := pgx.Connect(f.Context(), f.database)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = conn.Close(context.WithoutCancel(f.Context())) })
	return conn
}

func TestAPageThatDidNotChange(t *testing.T) {
	f := newFixture(t)
	c := f.create("clusters", "c-one", map[string]string{"a": "1"})
	f.create("clusters", "c-two", nil)
	pool := f.create("clusters/"+c.ID+"/nodepools", "np-one", nil)
	paths := []string{
		"clusters", "clusters?page=2&size=1", "clusters?order=name", "clusters?labels=a", "clusters?limit=1", "clusters?limit=1&labels=a%3D1", "clusters?limit=2",
		"clusters?ids=" + c.ID, "clusters?search=" + "name%3D'c-one'",
		"clusters?limit=1&continue=" + f.list("clusters?limit=1").Continue,
	}
	tags := map[string]string{}
	for _, path := range paths {
		tag := f.tag(path)
		for other, t := range tags {
			if t == tag {
				f.Errorf("%s and %s have the same tag", path, other)
			}
		}
		tags[path] = tag
		for reason, condition := range map[string][]string{
			"the tag": {tag}, "one of several": {`"x", ` + tag}, "on another line": {`"x"`, tag}, "weak": {"W/" + tag}, "anything": {"*"},
		} {
			if got := f.ask(path, condition...); got.status != http.StatusNotModified || got.header.Get("Etag") != tag {
				t.Errorf("%s: %s: %d %s, want 304 %s", path, reason, got.status, got.header.Get("Etag"), tag)
			}
		}
		f.ask(path, `"x"`, tag[1:len(tag)-1]).want(http.StatusOK)
	}

	f.do("PATCH", "nodepools/"+pool.ID, `{"spec":{"n":1}}`).want(200)
	f.do("PATCH", "clusters/"+c.ID, `{}`).want(200)
	for _, path := range paths {
		f.ask(path, tags[path]).want(http.StatusNotModified) // a change of another kind, and no change
	}
	f.report("clusters/"+c.ID, "dns", 1)
	for _, path := range paths {
		if now := f.ask(path, tags[path]).want(http.StatusOK).header.Get("Etag"); now == tags[path] {
			t.Errorf("%s changed and has the same tag", path)
		}
	}
}

func TestTagsOfTenants(t *testing.T) {
	red, blue, system := newTenants(t)
	red.create("clusters", "c-one", nil)
	tag := red.tag("clusters?limit=5")
	blue.ask("clusters?limit=5", tag).want(http.StatusOK)
	system.ask("clusters?limit=5", tag).want(http.StatusOK)
	red.ask("clusters?limit=5", tag).want(http.StatusNotModified)
}

// TestTagsWhenCommitsAreInReverseOrder commits the transaction that began first last. The newest
// change stays the same, but the visible data differs.
func TestTagsWhenCommitsAreInReverseOrder(t *testing.T) {
	f := newFixture(t)
	early, late := f.create("clusters", "c-early", nil), f.create("clusters", "c-late", nil)
	begin := func(id string) pgx.Tx {
		tx, err := f.connect().Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), "update tenant.clusters set phase = 'Failed' where id = $1", id); err != nil {
			t.Fatal(err)
		}
		return tx
	}
	commit := func(tx pgx.Tx) {
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	f.tag("clusters") // the database is a copy, and begins a new epoch
	for _, path := range []string{"clusters?limit=5", "clusters", "clusters?ids=" + early.ID} {
		first, second := begin(early.ID), begin(late.ID)
		before := f.tag(path)
		f.ask(path, before).want(http.StatusNotModified)
		commit(second)
		between := f.ask(path, before).want(http.StatusOK).header.Get("Etag")
		f.ask(path, between).want(http.StatusNotModified)
		commit(first)
		after := f.ask(path, before, between).want(http.StatusOK).header.Get("Etag")
		if before == between || between == after || before == after {
			t.Errorf("%s: tags %s, %s, %s", path, before, between, after)
		}
		f.ask(path, after).want(http.StatusNotModified)
	}
}

// texts maps each tag to its text.
type texts struct {
	mu    sync.Mutex
	known map[string]string
}

// read reads a path and compares the answer with the previous text of its tag.
func (x *texts) read(ctx context.Context, url string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d: %s", resp.StatusCode, body)
	}
	tag := resp.Header.Get("Etag")
	x.mu.Lock()
	defer x.mu.Unlock()
	if text, ok := x.known[tag]; ok && text != string(body) {
		return fmt.Errorf("tag %s stands for\n%s\nand for\n%s", tag, text, body)
	}
	x.known[tag] = string(body)
	return nil
}

// touchSome runs overlapping transactions that change one row each.
func touchSome(ctx context.Context, conn *pgx.Conn, writer, rounds int) error {
	for i := range rounds {
		_, err := conn.Exec(ctx, `
			begin;
			update tenant.clusters set observed_generation = observed_generation + 1
			where id = (select id from tenant.clusters order by id offset `+strconv.Itoa((writer+i)%5)+` limit 1);
			select pg_sleep(0.005);
			commit`)
		if err != nil {
			return err
		}
	}
	return nil
}

// TestATagStandsForOneText checks that a tag stands for one text under concurrent changes.
func TestATagStandsForOneText(t *testing.T) {
	f := newFixture(t)
	for i := range 5 {
		f.create("clusters", fmt.Sprintf("c-%03d", i), nil)
	}
	const writers, readers, rounds = 3, 6, 60
	var running atomic.Int64
	var g errgroup.Group
	running.Store(writers)
	for w := range writers {
		conn := f.connect()
		g.Go(func() error {
			defer running.Add(-1)
			return touchSome(t.Context(), conn, w, rounds)
		})
	}
	x := texts{known: map[string]string{}}
	for i := range readers {
		url := f.url + v1.BasePath + []string{"/clusters?limit=10", "/clusters?size=10"}[i%2]
		g.Go(func() error {
			for running.Load() > 0 {
				if err := x.read(t.Context(), url); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	http.DefaultClient.CloseIdleConnections()
	if len(x.known) < 20 {
		t.Errorf("%d texts; that proves little", len(x.known))
	}
}

// TestNumberedPagesThatDidNotChange checks that a client that already has some pages continues as
// if it had received them.
func TestNumberedPagesThatDidNotChange(t *testing.T) {
	f := newFixture(t)
	for _, name := range []string{"c-b", "c-d", "c-f", "c-h", "c-j"} {
		f.create("clusters", name, nil)
	}
	for _, order := range []string{"name", "id", "created_time", "generation", "updated_time desc"} {
		page := func(n int) string { return query("clusters", "size", "2", "order", order, "page", fmt.Sprint(n)) }
		tags := []string{f.tag(page(1)), f.tag(page(2)), f.tag(page(3))}
		for i := range 6 {
			f.ask(page(1+i%3), tags...).want(http.StatusNotModified)
		}
	}
	// A new first row appears while the client is between two pages.
	page := func(n int) string { return query("clusters", "size", "2", "order", "name", "page", fmt.Sprint(n)) }
	f.ask(page(1), f.tag(page(1))).want(http.StatusNotModified)
	f.create("clusters", "c-a", nil)
	walked := f.ask(page(2)).want(http.StatusOK)
	wantEqual(t, "the second page", []string{"c-f", "c-h"}, namesOf(read[v1.List](walked)))
	// For another process the page differs, so the client must get it in full.
	o := options{cfg: defaults(), database: f.database}
	counted := newFixtureWith(t, o).ask(page(2), walked.header.Get("Etag")).want(http.StatusOK)
	wantEqual(t, "the second page, counted", []string{"c-d", "c-f"}, namesOf(read[v1.List](counted)))

	for _, forged := range []string{"", "AAAA", strings.Repeat("A", 60), strings.Repeat("_", 48)} {
		tag := f.tag(page(1))
		tag, _, _ = strings.Cut(tag, ".")
		f.ask(page(1), tag+"."+forged+`"`)
	}
}

func TestConditionsOnOneResource(t *testing.T) {
	f := newFixture(t)
	created := f.do("POST", "clusters", v1.CreateRequest{Name: "c-one", Spec: []byte(`{}`)}).want(201)
	path := "clusters/" + read[v1.Resource](created).ID
	tag := f.tag(path)
	wantEqual(t, "tag of what was created", tag, created.header.Get("Etag"))
	for _, condition := range []string{tag, "W/" + tag, "*", `"x", ` + tag} {
		f.ask(path, condition).want(http.StatusNotModified)
	}
	f.ask(path, `"x"`).want(http.StatusOK)

	ifMatch := func(method, body string, tags ...string) *answer {
		var content any
		if body != "" {
			content = body
		}
		return f.doWith(http.Header{"If-Match": tags}, method, path, content)
	}
	ifMatch("PATCH", `{"spec":{"n":1}}`, `"x"`).problem(412, "precondition_failed", "has changed; read it again")
	ifMatch("PATCH", `{"spec":{"n":1}}`, "W/"+tag).problem(412, "precondition_failed", "has changed; read it again")
	ifMatch("DELETE", "", `"x"`).problem(412, "precondition_failed", "has changed; read it again")
	wantEqual(t, "tag of what nobody changed", tag, f.tag(path))
	patched := ifMatch("PATCH", `{"spec":{"n":1}}`, tag).want(200).header.Get("Etag")
	if patched == tag || patched != f.tag(path) {
		t.Errorf("tags %s, %s and %s", tag, patched, f.tag(path))
	}
	ifMatch("PATCH", `{"spec":{"n":2}}`, tag).problem(412, "precondition_failed", "has changed; read it again")
	f.report(path, "dns", 2)
	ifMatch("DELETE", "", patched).problem(412, "precondition_failed", "has changed; read it again")
	ifMatch("PATCH", `{"spec":{"n":3}}`, "*").want(200)
	ifMatch("DELETE", "", f.tag(path)).want(202)
}
