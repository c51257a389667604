package action

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

func results() *rapid.Generator[Result] {
	codes := []Code{CodeOK, CodeGuard, CodeForbidden, CodeInvalid, CodeTransient, CodePartial, CodeDeadline, CodeCancelled}
	resource := rapid.Custom(func(t *rapid.T) v1alpha1.AffectedResource {
		return v1alpha1.AffectedResource{Kind: "Deployment", Name: rapid.StringN(0, 80, 200).Draw(t, "name"), Action: "scaled", Before: rapid.StringN(0, 80, 512).Draw(t, "before")}
	})
	return rapid.Custom(func(t *rapid.T) Result {
		r := Result{
			Version: resultVersion, Code: rapid.SampledFrom(codes).Draw(t, "code"), Message: rapid.StringN(0, 400, 1600).Draw(t, "message"),
			Attempt: rapid.Int32Range(0, 9).Draw(t, "attempt"), Changed: rapid.Bool().Draw(t, "changed"),
			Resources: rapid.SliceOfN(resource, 0, 50).Draw(t, "resources"),
			Warnings:  rapid.SliceOfN(rapid.StringN(0, 100, 400), 0, 16).Draw(t, "warnings"),
			Log:       rapid.StringN(0, 2000, 8000).Draw(t, "log"),
			Started:   time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "started"), 0).UTC(),
			Ended:     time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "ended"), 5).UTC(),
		}
		r.Count = int32(len(r.Resources))
		if rapid.Bool().Draw(t, "dry") {
			r.DryRun = &v1alpha1.DryRunResults{Performed: true, Warnings: []string{}, Errors: rapid.SliceOfN(rapid.StringN(0, 400, 1600), 0, 4).Draw(t, "errors")}
		}
		return r
	})
}

// TestEncode holds that a result fits, and says how it ended whatever is left out.
func TestEncode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := results().Draw(t, "result")
		text := EncodeBounded(r)
		if len(text) > MaxResult {
			t.Fatalf("%d bytes", len(text))
		}
		got, err := DecodeResult(text)
		if err != nil {
			t.Fatalf("DecodeResult(%s) = %v", text, err)
		}
		if got.Code != r.Code || got.Changed != r.Changed || got.Count != r.Count || !got.Started.Equal(r.Started) || !got.Ended.Equal(r.Ended) {
			t.Fatalf("read %+v", got)
		}
		if got.Truncated {
			return
		}
		if diff := cmp.Diff(r, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("read (-want +got):\n%s", diff)
		}
	})
}

// TestEncodeOrder verifies the order in which parts of a result are omitted.
func TestEncodeOrder(t *testing.T) {
	r := Result{Version: 1, Message: "scaled", Log: strings.Repeat("a line of the log\n", 300) + "the last line\n", Warnings: []string{"a warning"}}
	got, err := DecodeResult(EncodeBounded(r))
	if err != nil || !got.Truncated || got.Message != r.Message || len(got.Warnings) != 1 || !strings.HasSuffix(got.Log, "the last line\n") || !strings.HasPrefix(got.Log, "a line of the log\n") {
		t.Errorf("read %+v, %v", got, err)
	}
	for i := range 50 {
		r.Resources = append(r.Resources, v1alpha1.AffectedResource{Kind: "Pod", Name: fmt.Sprintf("pod-%d", i), Before: strings.Repeat("x", 100), Action: "evicted"})
	}
	r.Count = 90
	got, err = DecodeResult(EncodeBounded(r))
	if err != nil || got.Log != "" || got.Count != 90 || len(got.Resources) == 0 || len(got.Resources) >= 50 || got.Resources[0].Name != "pod-0" || len(got.Warnings) != 1 {
		t.Errorf("read %d resources of %d with the log %q, %v", len(got.Resources), got.Count, got.Log, err)
	}
	if r.Resources[49].Name != "pod-49" || r.Log == "" {
		t.Error("Encode changed what it was given")
	}
	r.Started = time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC)
	if got, err = DecodeResult(EncodeBounded(r)); err != nil || got.Code != r.Code {
		t.Errorf("a time that JSON has not: %+v, %v", got, err)
	}
}

func TestDecodeResultRefuses(t *testing.T) {
	for name, in := range map[string]string{
		"Empty": "", "Text": "error: no", "Null": "null", "OtherVersion": `{"v":2,"code":0}`, "UnknownCode": `{"v":1,"code":7}`,
		"Two": `{"v":1,"code":0}{}`, "Long": `{"v":1,"code":0,"message":"` + strings.Repeat("x", MaxResult) + `"}`, "Types": `{"v":"1"}`,
	} {
		if _, err := DecodeResult(in); err == nil {
			t.Errorf("%s: read %q", name, TruncateText(in, 40))
		}
	}
}

func FuzzDecodeResult(f *testing.F) {
	f.Add(EncodeBounded(Result{Version: 1, Code: CodeGuard, Message: "no", Log: "a\nb\n", Started: time.Unix(1, 0), Ended: time.Unix(2, 0)}))
	f.Add(`{"v":1,"code":20,"resources":[{"kind":"Pod","name":"a","action":"b"}],"dryRun":{"performed":true,"success":false,"warnings":["x"]}}`)
	f.Fuzz(func(t *testing.T, in string) {
		r, err := DecodeResult(in)
		if err != nil {
			return
		}
		again, err := DecodeResult(EncodeBounded(r))
		if err != nil {
			t.Fatalf("DecodeResult(Encode()) = %v", err)
		}
		if again.Code != r.Code || again.Changed != r.Changed || again.Count < r.Count {
			t.Fatalf("read %+v, then %+v", r, again)
		}
	})
}

func TestNearest(t *testing.T) {
	for in, want := range map[string]string{"replica": "replicas", "relpicas": "replicas", "x": "", "namespaces": "namespace", "REPLICAS": "replicas"} {
		if got := nearestName(in, []string{"deployment", "namespace", "replicas"}); got != want {
			t.Errorf("nearest(%q) = %q, want %q", in, got, want)
		}
	}
	if err := (&UnknownError{Name: "a"}); !strings.Contains(err.Error(), `"a"`) || errors.Is(err, nil) {
		t.Error(err)
	}
}
