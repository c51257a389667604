package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// SBOMMediaType is the media type of a document.
const SBOMMediaType = "application/spdx+json"

// noAssertion is SPDX for unknown.
const noAssertion = "NOASSERTION"

// An SBOMSubject is the program that a document describes.
type SBOMSubject struct {
	Name    string           // of the program
	Data    []byte           // the program itself
	Build   *debug.BuildInfo // build information of the linker
	Created time.Time        // creation time of the document; the same time gives the same bytes
	Beside  []debug.Module   // modules whose data is in the program's image
}

// The document in the format of SPDX 2.3.
type (
	spdxDocument struct {
		Version       string             `json:"spdxVersion"`
		License       string             `json:"dataLicense"`
		ID            string             `json:"SPDXID"`
		Name          string             `json:"name"`
		Namespace     string             `json:"documentNamespace"`
		Creation      spdxCreation       `json:"creationInfo"`
		Packages      []spdxPackage      `json:"packages"`
		Relationships []spdxRelationship `json:"relationships"`
	}
	spdxCreation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		ID               string          `json:"SPDXID"`
		Name             string          `json:"name"`
		Version          string          `json:"versionInfo,omitempty"`
		FileName         string          `json:"packageFileName,omitempty"`
		Purpose          string          `json:"primaryPackagePurpose"`
		DownloadLocation string          `json:"downloadLocation"`
		FilesAnalyzed    bool            `json:"filesAnalyzed"`
		LicenseConcluded string          `json:"licenseConcluded"`
		LicenseDeclared  string          `json:"licenseDeclared"`
		Copyright        string          `json:"copyrightText"`
		SourceInfo       string          `json:"sourceInfo,omitempty"`
		Checksums        []spdxChecksum  `json:"checksums,omitempty"`
		References       []spdxReference `json:"externalRefs"`
	}
	spdxChecksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	spdxReference struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	spdxRelationship struct {
		Element string `json:"spdxElementId"`
		Type    string `json:"relationshipType"`
		Related string `json:"relatedSpdxElement"`
	}
)

const spdxDocumentID = "SPDXRef-DOCUMENT"

// EncodeSBOM lists the components of a Go program, as an SPDX document about s.
//
// The list comes from the program: the modules that the linker recorded in it, so that it contains
// the linked modules and not those that go.mod allows. The same program gives the same bytes.
func EncodeSBOM(s SBOMSubject) ([]byte, error) {
	if s.Build == nil || s.Build.Main.Path == "" {
		return nil, fmt.Errorf("list modules of %q: no main module: build it with 'go build' in module mode", s.Name)
	}
	if s.Build.GoVersion == "" {
		return nil, errors.New("list modules: no Go version in the build information")
	}
	digest := sha256.Sum256(s.Data)
	sum := hex.EncodeToString(digest[:])

	program := newModulePackage(s.Build.Main, "APPLICATION")
	program.ID = "SPDXRef-Program"
	program.Name = s.Name
	program.FileName = "/" + s.Name
	program.Checksums = []spdxChecksum{{Algorithm: "SHA256", Value: sum}}

	doc := spdxDocument{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: spdxDocumentID, Name: s.Name,
		Namespace: "https://" + s.Build.Main.Path + "/spdx/" + s.Name + "-" + sum,
		Creation: spdxCreation{
			Created:  s.Created.UTC().Format(time.RFC3339),
			Creators: []string{"Organization: Fleetloop", "Tool: fleetloop-release"},
		},
		Packages:      []spdxPackage{program},
		Relationships: []spdxRelationship{{Element: spdxDocumentID, Type: "DESCRIBES", Related: program.ID}},
	}
	doc.addPackage("DEPENDS_ON", newGoPackage(s.Build.GoVersion))
	for _, m := range resolveAndSortModules(s.Build.Deps) {
		doc.addPackage("DEPENDS_ON", newModulePackage(m, "LIBRARY"))
	}
	for _, m := range s.Beside {
		doc.addPackage("RUNTIME_DEPENDENCY_OF", newModulePackage(m, "LIBRARY"))
	}
	text, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode module list of %q: %w", s.Name, err)
	}
	return append(text, '\n'), nil
}

// addPackage lists p and its relation to the program. The program refers to its dependencies, and
// packages that serve the program refer to it.
func (d *spdxDocument) addPackage(relationshipType string, p spdxPackage) {
	program := d.Packages[0].ID
	r := spdxRelationship{Element: program, Type: relationshipType, Related: p.ID}
	if strings.HasSuffix(relationshipType, "_OF") {
		r.Element, r.Related = p.ID, program
	}
	d.Packages = append(d.Packages, p)
	d.Relationships = append(d.Relationships, r)
}

// resolveAndSortModules returns the linked modules, with replacements applied, sorted by path.
func resolveAndSortModules(deps []*debug.Module) []debug.Module {
	list := make([]debug.Module, 0, len(deps))
	for _, m := range deps {
		if m.Replace != nil {
			m = m.Replace
		}
		list = append(list, *m)
	}
	slices.SortFunc(list, func(a, b debug.Module) int {
		return strings.Compare(a.Path+"@"+a.Version, b.Path+"@"+b.Version)
	})
	return list
}

func newModulePackage(m debug.Module, purpose string) spdxPackage {
	p := spdxPackage{
		ID: formatSPDXID(m.Path, m.Version), Name: m.Path, Version: m.Version, Purpose: purpose,
		DownloadLocation: noAssertion, LicenseConcluded: noAssertion, LicenseDeclared: noAssertion, Copyright: noAssertion,
		References: newPackageReferences(m.Path, m.Version),
	}
	if m.Sum != "" {
		p.SourceInfo = "sum in go.sum: " + m.Sum // the sum is a hash of a list of hashes, so it is no checksum of a file
	}
	return p
}

// newGoPackage returns the standard library, with its name in vulnerability databases.
func newGoPackage(version string) spdxPackage {
	version, _, _ = strings.Cut(strings.TrimPrefix(version, "go"), " ") // experiments follow a space
	return newModulePackage(debug.Module{Path: "stdlib", Version: version}, "LIBRARY")
}

func newPackageReferences(path, version string) []spdxReference {
	return []spdxReference{{Category: "PACKAGE-MANAGER", Type: "purl", Locator: formatPackageURL(path, version)}}
}

// formatPackageURL returns a module's package URL; its type requires lower case.
func formatPackageURL(path, version string) string {
	parts := strings.Split(strings.ToLower(path), "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	s := "pkg:golang/" + strings.Join(parts, "/")
	if version != "" {
		s += "@" + strings.ReplaceAll(url.PathEscape(version), "+", "%2B")
	}
	return s
}

// formatSPDXID returns a valid SPDX name: letters, digits, dots and dashes. Other characters are
// escaped, so that two modules never share a name.
func formatSPDXID(path, version string) string {
	return "SPDXRef-Module-" + regexp.MustCompile(`[^A-Za-z0-9.-]`).ReplaceAllStringFunc(path+"-"+version, func(s string) string {
		if s == "/" {
			return "-"
		}
		return fmt.Sprintf(".%x.", s)
	})
}
