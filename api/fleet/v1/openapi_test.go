package v1_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/changeevent"
)

var update = flag.Bool("update", false, "write openapi.json anew")

// TestDocumentForms keeps openapi.json the same as openapi.yaml.
func TestDocumentForms(t *testing.T) {
	var document any
	if err := yaml.Unmarshal([]byte(v1.OpenAPIYAML()), &document); err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	e := json.NewEncoder(&want)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(document); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("openapi.json", want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if v1.OpenAPIJSON() != want.String() {
		t.Error("openapi.json is not openapi.yaml; run go generate")
	}
}

func load(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData([]byte(v1.OpenAPIYAML()))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestDocumentIsValid(t *testing.T) {
	if err := load(t).Validate(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestSchemasMatchTypes compares the members of each schema with the fields
// of the Go type of that name.
func TestSchemasMatchTypes(t *testing.T) {
	schemas := load(t).Components.Schemas
	types := []any{
		v1.Resource{},
		v1.Metadata{},
		v1.Reference{},
		v1.Status{},
		v1.Condition{},
		v1.List{},
		v1.Changes{},
		v1.CreateRequest{},
		v1.LoadResult{},
		v1.PatchRequest{},
		v1.ForceDeleteRequest{},
		v1.Report{},
		v1.ReportCondition{},
		v1.AdapterStatus{},
		v1.AdapterCondition{},
		v1.AdapterStatusList{},
		v1.Permission{},
		v1.Revision{},
		v1.RevisionList{},
		v1.ClusterSync{},
		v1.ClusterSyncList{},
		v1.Summary{},
		v1.LabelSummary{},
		v1.KindSummary{},
		v1.OldestResource{},
		v1.SyncSummary{},
		v1.SummaryReason{},
		v1.ReasonExample{},
		v1.StuckCause{},
		v1.StuckResource{},
		v1.StuckList{},
		v1.SyncPause{},
		v1.SyncControl{},
		v1.BulkSyncControl{},
		v1.BulkSyncResult{},
		v1.BulkSyncFailure{},
		v1.ChangeEvent{},
		v1.ChangeHealthEvent{},
		v1.ChangeLink{},
		v1.ChangeEventList{},
		v1.ChangesAccepted{},
		v1.ChangeBuckets{},
		v1.ChangeLane{},
		v1.Problem{},
		v1.FieldError{},
	}
	for _, v := range types {
		typ := reflect.TypeOf(v)
		ref, ok := schemas[typ.Name()]
		if !ok {
			t.Errorf("no schema %s", typ.Name())
			continue
		}
		var want []string
		for name := range ref.Value.Properties {
			want = append(want, name)
		}
		slices.Sort(want)
		got := fields(typ)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-schema +type):\n%s", typ.Name(), diff)
		}
	}
}

// TestWhatIsToldIsListed: what a sender may say of a change is there where
// changes are listed.
func TestWhatIsToldIsListed(t *testing.T) {
	listed := fields(reflect.TypeFor[v1.ChangeEvent]())
	for _, name := range fields(reflect.TypeFor[changeevent.Payload]()) {
		if !slices.Contains(listed, name) {
			t.Errorf("a change event is told with %s, which the API does not list", name)
		}
	}
	for _, pair := range [][2]reflect.Type{
		{reflect.TypeFor[changeevent.HealthEvent](), reflect.TypeFor[v1.ChangeHealthEvent]()},
		{reflect.TypeFor[changeevent.Link](), reflect.TypeFor[v1.ChangeLink]()},
	} {
		if diff := cmp.Diff(fields(pair[0]), fields(pair[1])); diff != "" {
			t.Errorf("%s (-told +listed):\n%s", pair[1].Name(), diff)
		}
	}
}

func fields(typ reflect.Type) []string {
	var names []string
	for f := range typ.Fields() {
		if f.Anonymous {
			names = append(names, fields(f.Type)...)
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}
