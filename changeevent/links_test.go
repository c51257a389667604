package changeevent

import (
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestLinkTemplate(t *testing.T) {
	cases := map[string]struct {
		reason   string
		template LinkTemplate
		change   func(e *ChangeEvent)
		want     Link
	}{
		"Plain":   {reason: "a link without names", template: LinkTemplate{Href: "https://wiki.example/runbook", Text: "Runbook"}, want: Link{"https://wiki.example/runbook", "Runbook"}},
		"Node":    {reason: "names in the query", template: LinkTemplate{Href: "https://g.example/d/n?var-node={node}&var-cluster={cluster}"}, want: Link{Href: "https://g.example/d/n?var-node=gpu-node-01&var-cluster=my-cluster-name"}},
		"Text":    {reason: "names in the text", template: LinkTemplate{Href: "https://wiki.example/{checkName}/{errorCode}", Text: "How to handle {errorCode}"}, want: Link{"https://wiki.example/xid-check/XID-79", "How to handle XID-79"}},
		"Window":  {reason: "the time around it", template: LinkTemplate{Href: "https://g.example/?from={from}&to={to}"}, want: Link{Href: "https://g.example/?from=1756218478315&to=1756220278315"}},
		"Others":  {reason: "all the rest", template: LinkTemplate{Href: "https://x.example/{action}/{source}/{session}/{id}/{agent}?at={time}"}, want: Link{Href: "https://x.example/cordon/nvsentinel%2Ffault-quarantine/k3f9c2/9b1c2d3e4f5061728394a5b6c7d8e9f0/syslog-health-monitor?at=2025-08-26T14%3A42%3A58.315Z"}},
		"Escapes": {reason: "a name cannot add a parameter", template: LinkTemplate{Href: "https://g.example/?n={node}"}, change: func(e *ChangeEvent) { e.NodeName = "a&admin=1#/../é b" }, want: Link{Href: "https://g.example/?n=a%26admin%3D1%23%2F..%2F%C3%A9%20b"}},
		"Climbs":  {reason: "nor climb out of the path", template: LinkTemplate{Href: "https://g.example/nodes/{node}/x"}, change: func(e *ChangeEvent) { e.NodeName = ".." }},
		"Missing": {reason: "a link to no node leads nowhere", template: LinkTemplate{Href: "https://g.example/{node}"}, change: func(e *ChangeEvent) { e.NodeName = "" }},
		"Action":  {reason: "only for some", template: LinkTemplate{Href: "https://g.example/", Actions: []string{ActionUncordon}}},
		"ActionIs": {
			reason: "and this is one", template: LinkTemplate{Href: "https://g.example/", Actions: []string{ActionUncordon, ActionCordon}},
			want: Link{Href: "https://g.example/"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if err := tc.template.Validate(); err != nil {
				t.Fatal(err)
			}
			e := newEvent()
			if tc.change != nil {
				tc.change(e)
			}
			got, ok := tc.template.Expand(e)
			if got != tc.want || ok != (tc.want.Href != "") {
				t.Errorf("%s: %+v (%t), want %+v", tc.reason, got, ok, tc.want)
			}
			if all := safeOwnAndTemplateLinks([]LinkTemplate{tc.template, tc.template}, e); len(all) > 1 || (len(all) == 1) != ok {
				t.Errorf("%s: links of the event: %v", tc.reason, all)
			}
		})
	}
}

func TestLinkTemplateRefused(t *testing.T) {
	for href, want := range map[string]string{
		"":                            "not an https URL",
		"http://g.example/":           "not an https URL",
		"javascript:alert(1)":         "not an https URL",
		"https:///x":                  "not an https URL",
		"https://{cluster}.example/":  "placeholder in its host",
		"https://u:p@g.example/":      "user or password",
		"https://g.example/{nodes}":   "unknown placeholder {nodes}: use one of cluster, node",
		"https://g.example/{node":     "brace",
		"https://g.example/node}":     "brace",
		"https://g.example/{{node}}":  "brace",
		"https://g.example/../{node}": "segments",
		"https://g.example/%zz":       "not a valid URL",
	} {
		if err := (LinkTemplate{Href: href}).Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Validate(%q) = %v, want an error with %q", href, err, want)
		}
	}
	if err := (LinkTemplate{Href: "https://g.example/", Text: "{what}"}).Validate(); err == nil || !strings.Contains(err.Error(), "{what}") {
		t.Errorf("a text with an unknown placeholder: %v", err)
	}
}

// TestLinksStayWhereTheyAre verifies that no event changes the host, the path above a
// name, or the number of parameters.
func TestLinksStayWhereTheyAre(t *testing.T) {
	template := LinkTemplate{Href: "https://g.example/base/{node}/view?c={cluster}&x=1#{session}"}
	rapid.Check(t, func(t *rapid.T) {
		link, ok := template.Expand(anEvent(t))
		if !ok {
			return
		}
		u, err := url.Parse(link.Href)
		if err != nil {
			t.Fatal(err)
		}
		if u.Host != "g.example" || !strings.HasPrefix(u.EscapedPath(), "/base/") || strings.Count(u.EscapedPath(), "/") != 3 || len(u.Query()) != 2 {
			t.Fatalf("link %q", link.Href)
		}
	})
}
