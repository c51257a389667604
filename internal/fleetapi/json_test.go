package fleetapi

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// resource returns the client's form of a record by a slow conversion.
func resource(tb testing.TB, r *Record, k *kind) v1.Resource {
	tb.Helper()
	res := v1.Resource{
		ID: r.ID, Kind: r.Kind, Name: r.Name, Href: v1.BasePath + "/" + k.collection + "/" + r.ID,
		Metadata:   v1.Metadata{Name: r.Name, DisplayName: r.DisplayName},
		Spec:       r.Spec,
		Generation: r.Generation, CreatedTime: r.CreatedTime, UpdatedTime: r.UpdatedTime,
		CreatedBy: r.CreatedBy, UpdatedBy: r.UpdatedBy, DeletedBy: r.DeletedBy,
		Status: v1.Status{
			Phase: r.Status.Phase, ObservedGeneration: r.Status.ObservedGeneration,
			LastUpdatedTime: r.Status.LastUpdatedTime, LastTransitionTime: r.Status.LastTransitionTime,
		},
	}
	for into, from := range map[any]json.RawMessage{&res.Labels: r.Labels, &res.Status.Conditions: r.Status.Conditions} {
		if err := json.Unmarshal(from, into); err != nil {
			tb.Fatal(err)
		}
	}
	res.Metadata.Labels = res.Labels
	if r.IsBeingDeleted() {
		res.DeletedTime = &r.DeletedTime
	}
	if k.parent != nil {
		href := v1.BasePath + "/" + k.parent.collection + "/" + r.ParentID
		res.OwnerResource = &v1.Reference{ID: r.ParentID, Kind: k.parent.name, Href: href}
		res.OwnerReferences = res.OwnerResource
		res.Href = href + "/" + k.collection + "/" + r.ID
	}
	return res
}

func someTime() *rapid.Generator[time.Time] {
	return rapid.Custom(func(t *rapid.T) time.Time {
		return time.UnixMicro(rapid.Int64Range(0, 1<<51).Draw(t, "micros")).UTC()
	})
}

// TestAppendRecord compares the hand-written encoding with encoding/json.
func TestAppendRecord(t *testing.T) {
	clusters := &kind{name: v1.KindCluster, collection: v1.CollectionClusters}
	pools := &kind{name: v1.KindNodePool, collection: v1.CollectionNodePools, parent: clusters}
	rapid.Check(t, func(rt *rapid.T) {
		k := rapid.SampledFrom([]*kind{clusters, pools}).Draw(rt, "kind")
		labels, err := json.Marshal(rapid.MapOf(rapid.String(), rapid.String()).Draw(rt, "labels"))
		if err != nil {
			rt.Fatal(err)
		}
		conditions, err := json.Marshal([]v1.Condition{{Type: "X", Message: rapid.String().Draw(rt, "message"), CreatedTime: someTime().Draw(rt, "t0")}})
		if err != nil {
			rt.Fatal(err)
		}
		r := Record{
			Key: Key{k.name, "id-1"},
			Content: Content{
				Name: rapid.String().Draw(rt, "name"), DisplayName: rapid.String().Draw(rt, "display"),
				Labels: labels, Spec: json.RawMessage(`{"a":[1.0,"<&>"]}`),
			},
			Generation:  rapid.Int64().Draw(rt, "generation"),
			CreatedTime: someTime().Draw(rt, "t1"), UpdatedTime: someTime().Draw(rt, "t2"),
			CreatedBy: rapid.String().Draw(rt, "by1"), UpdatedBy: rapid.String().Draw(rt, "by2"), DeletedBy: rapid.String().Draw(rt, "by3"),
			Status: Status{
				Phase: v1.PhaseReady, ObservedGeneration: rapid.Int64().Draw(rt, "observed"),
				LastUpdatedTime: someTime().Draw(rt, "t3"), LastTransitionTime: someTime().Draw(rt, "t4"), Conditions: conditions,
			},
		}
		if k.parent != nil {
			r.ParentID = "id-0"
		}
		if rapid.Bool().Draw(rt, "deleting") {
			r.DeletedTime = someTime().Draw(rt, "t5")
		}
		want, err := json.Marshal(resource(t, &r, k))
		if err != nil {
			rt.Fatal(err)
		}
		got := appendRecordJSON(nil, &r, k)
		var a, b any
		if err := json.Unmarshal(got, &a); err != nil {
			rt.Fatalf("%v in %s", err, got)
		}
		if err := json.Unmarshal(want, &b); err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(b, a); diff != "" {
			rt.Fatalf("(-encoding/json +appendRecord):\n%s", diff)
		}
		if !bytes.Contains(got, r.Spec) {
			rt.Fatalf("the spec is not as it was: %s", got)
		}
	})
}

func TestSameJSON(t *testing.T) {
	cases := map[string]struct {
		a, b string
		want bool
	}{
		"Same":           {`{"a":1}`, `{"a":1}`, true},
		"Space":          {`{"a":1,"b":[1,2]}`, ` { "a" : 1, "b":[ 1,2 ]} `, true},
		"MemberOrder":    {`{"a":1,"b":{"c":2,"d":3}}`, `{"b":{"d":3,"c":2},"a":1}`, true},
		"ListOrder":      {`[1,2]`, `[2,1]`, false},
		"Escapes":        {`"\u00e4\/"`, `"ä/"`, true},
		"OtherText":      {`"a"`, `"b"`, false},
		"NumberInText":   {`"1.0"`, `"1"`, false},
		"QuoteInText":    {`"\"1.0"`, `"\"1"`, false},
		"SlashInText":    {`["\\",1.0]`, `["\\",1]`, true},
		"Fraction":       {`1.50`, `1.5`, true},
		"WholeFraction":  {`100.0`, `1e2`, true},
		"Exponent":       {`1.5e3`, `1500`, true},
		"SmallExponent":  {`15E-1`, `1.5`, true},
		"PlusExponent":   {`1e+2`, `100`, true},
		"Zero":           {`0.00`, `0e7`, true},
		"MinusZero":      {`-0`, `0`, true},
		"Sign":           {`-1`, `1`, false},
		"BeyondDoubles":  {`9007199254740992`, `9007199254740993`, false},
		"ManyDigits":     {`0.1000000000000000055511151231257827`, `0.1`, false},
		"HugeExponent":   {`1e400`, `1e401`, false},
		"HugeSame":       {`10e400`, `1e401`, true},
		"AbsurdExponent": {`1e99999999999`, `1e99999999998`, false},
		"NullIsNotZero":  {`null`, `0`, false},
		"NotThere":       {`{"a":null}`, `{}`, false},
		"TrueAndOne":     {`true`, `1`, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := equalJSON([]byte(tc.a), []byte(tc.b)); got != tc.want {
				t.Errorf("%s and %s: %v", tc.a, tc.b, got)
			}
			if equalJSON([]byte(tc.b), []byte(tc.a)) != tc.want {
				t.Error("it depends on the order")
			}
		})
	}
}

// FuzzSameJSON checks that a value equals itself, and that values which differ for encoding/json
// are not equal.
func FuzzSameJSON(f *testing.F) {
	f.Add(`{"a":1}`, `{"a":1.0}`)
	f.Add(`["\\\"1",2e0]`, `[" ",2]`)
	f.Fuzz(func(t *testing.T, a, b string) {
		var x, y any
		if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
			return
		}
		if !equalJSON([]byte(a), []byte(a)) {
			t.Errorf("%s is not itself", a)
		}
		if equalJSON([]byte(a), []byte(b)) && !cmp.Equal(x, y) {
			t.Errorf("%s and %s are not the same", a, b)
		}
	})
}

func BenchmarkAppendRecord(b *testing.B) {
	k := &kind{name: v1.KindCluster, collection: v1.CollectionClusters}
	r := Record{
		Key:         Key{v1.KindCluster, "019a3f5e-7c1d-7b3e-8f00-0123456789ab"},
		Content:     Content{Name: "c-one", Labels: json.RawMessage(`{"region": "us-east", "shard": "1"}`), Spec: json.RawMessage(`{"nodes":3,"version":"1.31"}`)},
		Generation:  3,
		CreatedTime: time.Now(), UpdatedTime: time.Now(), CreatedBy: "rosa", UpdatedBy: "rosa",
		Status: Status{Phase: v1.PhaseReady, ObservedGeneration: 3, Conditions: json.RawMessage(`[]`)},
	}
	b.Run("AppendRecord", func(b *testing.B) {
		var buf []byte
		for b.Loop() {
			buf = appendRecordJSON(buf[:0], &r, k)
		}
	})
	b.Run("EncodingJSON", func(b *testing.B) {
		res := resource(b, &r, k)
		for b.Loop() {
			if _, err := json.Marshal(res); err != nil {
				b.Fatal(err)
			}
		}
	})
}
