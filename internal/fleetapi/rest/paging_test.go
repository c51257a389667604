package rest_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/internal/fleetapi/rest"
)

const someID = "019a3f5e-7c1d-7b3e-8f00-0123456789ab"

func TestPageToken(t *testing.T) {
	q := rest.DigestQuery("Cluster", "", "a=b")
	token, err := rest.NewIDPageToken(q, someID)
	if err != nil {
		t.Fatal(err)
	}
	if id, err := rest.ParseIDPageToken(q, token); err != nil || id != someID {
		t.Errorf("got %q, %v", id, err)
	}
	if _, err := rest.ParseIDPageToken(rest.DigestQuery("Cluster", "", "a=c"), token); !errors.Is(err, rest.ErrForeignToken) {
		t.Errorf("with another selector: %v", err)
	}
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		t.Fatal(err)
	}
	raw[0] = 9
	for name, bad := range map[string]string{
		"Empty": "", "Cut": token[:len(token)-2], "Longer": token + "AA", "NotBase64": "!" + token[1:], "OtherVersion": base64.RawURLEncoding.EncodeToString(raw),
	} {
		if _, err := rest.ParseIDPageToken(q, bad); !errors.Is(err, rest.ErrMalformedToken) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := rest.NewIDPageToken(q, "cls-1"); err == nil {
		t.Error("an id that is no UUID has a token")
	}
}

func TestTimedPageToken(t *testing.T) {
	q := rest.DigestQuery("syncs", "stuck")
	for name, at := range map[string]time.Time{"Time": time.Date(2026, 3, 1, 12, 0, 0, 123_456_000, time.UTC), "None": {}} {
		token, err := rest.NewTimeAndIDPageToken(q, at, someID)
		if err != nil {
			t.Fatal(err)
		}
		if gotAt, id, err := rest.ParseTimeAndIDPageToken(q, token); err != nil || id != someID || !gotAt.Equal(at) || gotAt.IsZero() != at.IsZero() {
			t.Errorf("%s: got %s, %q, %v", name, gotAt, id, err)
		}
		if _, _, err := rest.ParseTimeAndIDPageToken(rest.DigestQuery("syncs", "paused"), token); !errors.Is(err, rest.ErrForeignToken) {
			t.Errorf("%s: with other states: %v", name, err)
		}
		if _, err := rest.ParseIDPageToken(q, token); !errors.Is(err, rest.ErrMalformedToken) {
			t.Errorf("%s: as a token of an id: %v", name, err)
		}
	}
	plain, err := rest.NewIDPageToken(q, someID)
	if err != nil {
		t.Fatal(err)
	}
	far, err := rest.NewTimeAndIDPageToken(q, time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC), someID)
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]string{"Empty": "", "OfAnID": plain, "TooFar": far} {
		if _, _, err := rest.ParseTimeAndIDPageToken(q, bad); !errors.Is(err, rest.ErrMalformedToken) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := rest.NewTimeAndIDPageToken(q, time.Time{}, "cls-1"); err == nil {
		t.Error("an id that is no UUID has a token")
	}
}

func FuzzParseTimedPageToken(f *testing.F) {
	q := rest.DigestQuery("x")
	token, err := rest.NewTimeAndIDPageToken(q, at(1), someID)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(token)
	f.Fuzz(func(t *testing.T, s string) {
		at, id, err := rest.ParseTimeAndIDPageToken(q, s)
		if err != nil {
			return
		}
		if again, err := rest.NewTimeAndIDPageToken(q, at, id); err != nil || again != s {
			t.Errorf("%q stands for %s and %s, whose token is %q (%v)", s, at, id, again, err)
		}
	})
}

func TestDigestQueryKeepsPartsApart(t *testing.T) {
	if rest.DigestQuery("ab", "c") == rest.DigestQuery("a", "bc") {
		t.Error("parts run into each other")
	}
}

func FuzzParsePageToken(f *testing.F) {
	q := rest.DigestQuery("x")
	token, err := rest.NewIDPageToken(q, someID)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(token)
	f.Fuzz(func(t *testing.T, s string) {
		id, err := rest.ParseIDPageToken(q, s)
		if err != nil {
			return
		}
		if again, err := rest.NewIDPageToken(q, id); err != nil || again != s {
			t.Errorf("%q stands for %s, whose token is %q (%v)", s, id, again, err)
		}
	})
}

// at returns the time s seconds after noon.
func at(s int) time.Time { return time.Date(2026, 3, 1, 12, 0, s, 0, time.UTC) }

func TestPageWalks(t *testing.T) {
	var w rest.PageWalks[string]
	q := rest.DigestQuery("q")
	want := func(reason, client string, page int, now time.Time, start string) {
		t.Helper()
		got, ok := w.FindPageStart(q, client, page, now)
		if got != start || ok != (start != "") {
			t.Errorf("%s: page %d of %s begins behind %q (%v), want %q", reason, page, client, got, ok, start)
		}
	}
	want("nobody walked", "a", 2, at(0), "")
	w.RecordPage(q, "a", 1, "", "a1", at(0))
	want("the first page has no start", "a", 1, at(0), "")
	want("the next page", "a", 2, at(1), "a1")
	want("another query", "a", 3, at(1), "")
	w.RecordPage(q, "a", 2, "a1", "a2", at(1))
	want("the same page again", "a", 2, at(2), "a1")
	want("the next page", "a", 3, at(2), "a2")
	want("a page further on", "a", 4, at(2), "")

	w.RecordPage(q, "b", 1, "", "b1", at(3))
	w.RecordPage(q, "b", 2, "b1", "b2", at(4))
	want("each its own", "a", 3, at(5), "a2")
	want("each its own", "b", 3, at(5), "b2")
	want("a new address is the last one that was here", "c", 3, at(5), "b2")
	want("forgotten", "a", 3, at(1).Add(rest.PageWalkAge+1), "b2")
	want("not yet forgotten", "b", 3, at(4).Add(rest.PageWalkAge), "b2")
	want("all forgotten", "a", 3, at(4).Add(rest.PageWalkAge+1), "")

	w.RecordPage(q, "d", 7, "", "d7", at(5))
	want("a page that was counted is counted again", "d", 7, at(6), "")
	want("the next one", "d", 8, at(6), "d7")

	w.RecordPage(q, "a", 1, "", "a1'", at(6))
	want("from the beginning again", "a", 3, at(7), "b2")
	want("from the beginning again", "a", 2, at(7), "a1'")
}

func TestPageWalksAreBounded(t *testing.T) {
	var w rest.PageWalks[int]
	q := rest.DigestQuery("q")
	for i := range 100 {
		w.RecordPage(q, fmt.Sprint(i), 1, 0, i+1, at(i))
	}
	if got, _ := w.FindPageStart(q, "0", 2, at(99)); got != 100 {
		t.Errorf("the oldest client is still known: %d", got)
	}
	if got, _ := w.FindPageStart(q, "99", 2, at(99)); got != 100 {
		t.Errorf("the newest client is lost: %d", got)
	}
	for i := 84; i < 100; i++ {
		if got, _ := w.FindPageStart(q, fmt.Sprint(i), 2, at(99)); got != i+1 {
			t.Errorf("client %d of the last sixteen begins at %d", i, got)
		}
	}
	for i := range 5000 {
		w.RecordPage(rest.DigestQuery(fmt.Sprint(i)), "a", 1, 0, 1, at(99))
	}
	if _, ok := w.FindPageStart(q, "99", 2, at(99)); ok {
		t.Error("nothing is ever forgotten")
	}
	if _, ok := w.FindPageStart(rest.DigestQuery("4999"), "a", 2, at(99)); !ok {
		t.Error("the newest query is lost")
	}
}

func TestNumberedPageTokens(t *testing.T) {
	q := rest.DigestQuery("a")
	rapid.Check(t, func(r *rapid.T) {
		at := time.UnixMicro(rapid.Int64Range(-62135596800000000, 253402300799999999).Draw(r, "micros")).UTC()
		number := rapid.Int64().Draw(r, "number")
		gotAt, got, err := rest.ParseTimeAndNumberPageToken(q, rest.NewTimeAndNumberPageToken(q, at, number))
		if err != nil || !gotAt.Equal(at) || got != number {
			r.Fatalf("%s and %d came back as %s and %d: %v", at, number, gotAt, got, err)
		}
	})
	token := rest.NewTimeAndNumberPageToken(q, at(0), 1)
	if _, _, err := rest.ParseTimeAndNumberPageToken(rest.DigestQuery("b"), token); !errors.Is(err, rest.ErrForeignToken) {
		t.Errorf("another query: %v", err)
	}
	for _, text := range []string{"", "x", token[1:], token + "A", rest.NewTimeAndNumberPageToken(q, time.UnixMicro(1<<62), 1)} {
		if _, _, err := rest.ParseTimeAndNumberPageToken(q, text); !errors.Is(err, rest.ErrMalformedToken) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
