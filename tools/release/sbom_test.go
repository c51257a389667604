package main

import (
	"encoding/json"
	"net/url"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// sbomDocument holds the fields of SPDX 2.3 that a reader needs, with the names of the specification.
type sbomDocument struct {
	SPDXVersion       string `json:"spdxVersion"`
	DataLicense       string `json:"dataLicense"`
	SPDXID            string
	Name              string `json:"name"`
	DocumentNamespace string `json:"documentNamespace"`
	CreationInfo      struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	} `json:"creationInfo"`
	Packages []struct {
		SPDXID           string
		Name             string `json:"name"`
		VersionInfo      string `json:"versionInfo"`
		DownloadLocation string `json:"downloadLocation"`
		SourceInfo       string `json:"sourceInfo"`
		Checksums        []struct {
			Algorithm     string `json:"algorithm"`
			ChecksumValue string `json:"checksumValue"`
		} `json:"checksums"`
		ExternalRefs []struct {
			ReferenceLocator string `json:"referenceLocator"`
		} `json:"externalRefs"`
	} `json:"packages"`
	Relationships []struct {
		SPDXElementID      string `json:"spdxElementId"`
		RelationshipType   string `json:"relationshipType"`
		RelatedSPDXElement string `json:"relatedSpdxElement"`
	} `json:"relationships"`
}

func newSubject() SBOMSubject {
	return SBOMSubject{
		Name: "sentinel", Data: []byte("program"), Created: time.Date(2026, 3, 1, 12, 0, 0, 0, time.FixedZone("", 3600)),
		Build: &debug.BuildInfo{
			GoVersion: "go1.26.8 X:jsonv2",
			Main:      debug.Module{Path: "github.com/fleetloop/fleetloop", Version: "v1.2.3"},
			Deps: []*debug.Module{
				{Path: "github.com/b/Upper", Version: "v2.0.0+incompatible", Sum: "h1:AAAA="},
				{Path: "a.org/x", Version: "v1.0.0", Replace: &debug.Module{Path: "a.org/fork", Version: "v1.0.1"}},
			},
		},
		Beside: []debug.Module{{Path: "a.org/roots", Version: "v3.0.0"}},
	}
}

func newSBOM(t *testing.T, s SBOMSubject) sbomDocument {
	t.Helper()
	text, err := EncodeSBOM(s)
	if err != nil {
		t.Fatal(err)
	}
	again, err := EncodeSBOM(s)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(text), string(again)); diff != "" {
		t.Errorf("the same program gives two documents:\n%s", diff)
	}
	var doc sbomDocument
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

// TestSBOMModules: each module that was linked, or that replaced it, is there
// under the name that databases of vulnerabilities look for.
func TestSBOMModules(t *testing.T) {
	doc := newSBOM(t, newSubject())
	var got []string
	for _, p := range doc.Packages {
		for _, r := range p.ExternalRefs {
			got = append(got, p.Name+" "+r.ReferenceLocator)
		}
	}
	want := []string{
		"sentinel pkg:golang/github.com/fleetloop/fleetloop@v1.2.3",
		"stdlib pkg:golang/stdlib@1.26.8",
		"a.org/fork pkg:golang/a.org/fork@v1.0.1",
		"github.com/b/Upper pkg:golang/github.com/b/upper@v2.0.0%2Bincompatible",
		"a.org/roots pkg:golang/a.org/roots@v3.0.0",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("packages (-want +got):\n%s", diff)
	}
	if got := doc.Packages[3].SourceInfo; !strings.Contains(got, "h1:AAAA=") {
		t.Errorf("a module's sum is not told: %q", got)
	}
	if got := doc.Packages[0].Checksums; len(got) != 1 || got[0].Algorithm != "SHA256" || len(got[0].ChecksumValue) != 64 {
		t.Errorf("checksums of the program: %v", got)
	}
}

// TestSBOMForm holds what SPDX 2.3 asks of any document.
func TestSBOMForm(t *testing.T) {
	doc := newSBOM(t, newSubject())
	if doc.SPDXVersion != "SPDX-2.3" || doc.DataLicense != "CC0-1.0" || doc.SPDXID != "SPDXRef-DOCUMENT" || doc.Name == "" {
		t.Errorf("head of the document: %+v", doc)
	}
	if u, err := url.Parse(doc.DocumentNamespace); err != nil || !u.IsAbs() || u.Fragment != "" {
		t.Errorf("namespace %q is no absolute URI without fragment", doc.DocumentNamespace)
	}
	if doc.CreationInfo.Created != "2026-03-01T11:00:00Z" {
		t.Errorf("created %q, want it in UTC with Z", doc.CreationInfo.Created)
	}
	creator := regexp.MustCompile(`^(Person|Organization|Tool): .+`)
	if len(doc.CreationInfo.Creators) == 0 || slices.ContainsFunc(doc.CreationInfo.Creators, func(c string) bool { return !creator.MatchString(c) }) {
		t.Errorf("creators %q", doc.CreationInfo.Creators)
	}
	id := regexp.MustCompile(`^SPDXRef-[A-Za-z0-9.-]+$`)
	elements := map[string]bool{doc.SPDXID: true}
	for _, p := range doc.Packages {
		if !id.MatchString(p.SPDXID) || elements[p.SPDXID] {
			t.Errorf("id %q is not well formed, or there twice", p.SPDXID)
		}
		elements[p.SPDXID] = true
		if p.Name == "" || p.DownloadLocation == "" {
			t.Errorf("package %q lacks its name or where to get it", p.SPDXID)
		}
	}
	related := map[string]string{}
	for _, r := range doc.Relationships {
		if !elements[r.SPDXElementID] || !elements[r.RelatedSPDXElement] {
			t.Errorf("relationship of something that is not there: %+v", r)
		}
		related[r.SPDXElementID+" "+r.RelatedSPDXElement] = r.RelationshipType
	}
	for pair, want := range map[string]string{
		"SPDXRef-DOCUMENT SPDXRef-Program":                  "DESCRIBES",
		"SPDXRef-Program SPDXRef-Module-a.org-fork-v1.0.1":  "DEPENDS_ON",
		"SPDXRef-Module-a.org-roots-v3.0.0 SPDXRef-Program": "RUNTIME_DEPENDENCY_OF",
	} {
		if related[pair] != want {
			t.Errorf("%s is %q, want %q, among %v", pair, related[pair], want, related)
		}
	}
}

func TestSBOMNoModules(t *testing.T) {
	s := newSubject()
	s.Build = &debug.BuildInfo{GoVersion: "go1.26.8"}
	if _, err := EncodeSBOM(s); err == nil || !strings.Contains(err.Error(), "build it with 'go build'") {
		t.Errorf("a program without its module: %v", err)
	}
	s = newSubject()
	s.Build.GoVersion = ""
	if _, err := EncodeSBOM(s); err == nil {
		t.Error("a program without the version of Go was taken")
	}
}
