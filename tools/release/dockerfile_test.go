package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDockerfile reads the Dockerfile as text, for no daemon is needed to run
// the tests: it can show that the two ways agree on what runs and as whom,
// not that the build works.
func TestDockerfile(t *testing.T) {
	raw, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	goVersion := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(string(mod))
	want := []string{
		"FROM golang:" + goVersion[1] + " AS build\n",
		"go run ./tools/release -files /files ${BINARY}\n",
		"FROM scratch AS files\nCOPY --from=build /files /\nUSER " + ImageUser + "\nWORKDIR /\n",
		"FROM ${BINARY}\n",
	}
	for _, binary := range binaries() {
		want = append(want, "FROM files AS "+binary+"\nENTRYPOINT [\"/"+binary+"\"]\n")
	}
	for _, w := range want {
		if strings.Count(text, w) != 1 {
			t.Errorf("want once in the Dockerfile:\n%s", w)
		}
	}
	if n := strings.Count(text, "ENTRYPOINT"); n != len(binaries()) {
		t.Errorf("%d entrypoints for %d binaries", n, len(binaries()))
	}
	if !strings.HasSuffix(text, "FROM ${BINARY}\n") {
		t.Error("the last stage is not the chosen binary's")
	}
}

// TestMakefile: `make images` makes an image of every binary.
func TestMakefile(t *testing.T) {
	raw, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^BINARIES := (.*)$`).FindStringSubmatch(string(raw))
	if m == nil {
		t.Fatal("the Makefile names no BINARIES")
	}
	got := strings.Fields(m[1])
	slices.Sort(got)
	if diff := cmp.Diff(binaries(), got); diff != "" {
		t.Errorf("BINARIES of the Makefile (-cmd +BINARIES):\n%s", diff)
	}
}
