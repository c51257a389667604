package docs_test

import (
	"strings"
	"testing"
)

// TestParsePage holds which commands of a page are run, where, and on which lines.
func TestParsePage(t *testing.T) {
	page := strings.Join([]string{
		"# Page", "<!-- run: up -->", "", "```sh", "one", "```", "", // one on line 5
		"```yaml", "# values.yaml", "a: 1", "```", // the file on line 8
		"<!-- run: cluster -->", "```sh", "two", "", "three", "```", // two on line 14
		"<!-- run: no (needs a registry) -->", "```sh", "four", "```", "```text", "not run", "```",
	}, "\n")
	blocks, err := parsePage(page)
	if err != nil {
		t.Fatal(err)
	}
	for env, want := range map[environment]map[int]string{
		envUp:      {5: "one", 8: "cp '/f/8' 'values.yaml'"},
		envCluster: {8: "cp '/f/8' 'values.yaml'", 14: "two", 16: "three"},
	} {
		lines := strings.Split(script(blocks, env, "/f"), "\n")
		for i, line := range lines {
			if line != want[i+1] {
				t.Errorf("%s: line %d is %q, want %q", env, i+1, line, want[i+1])
			}
		}
	}
	if last := blocks[len(blocks)-1]; last.env != envSkip || last.reason != "needs a registry" {
		t.Errorf("the last block is %+v", last)
	}
}

// TestParsePageRejects holds that no command is left out by mistake.
func TestParsePageRejects(t *testing.T) {
	for name, text := range map[string]string{
		"UnknownEnvironment": "<!-- run: manual -->\n```sh\nx\n```",
		"NoReason":           "<!-- run: no -->\n```sh\nx\n```",
		"OpenBlock":          "```sh\nx",
		"OtherShell":         "```bash\nx\n```",
	} {
		if _, err := parsePage(text); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
