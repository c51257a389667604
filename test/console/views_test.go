package console

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/chromedp/chromedp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

var screenshots = flag.String("screenshots", "", "write a picture of each view into this folder")

// A look is a screen on which every view is opened.
type look struct {
	name   string
	scheme string
	width  int64
	height int64
	// pictures lists the views of which there is a picture; nil means all.
	pictures []string
}

var looks = []look{
	{"light", "light", 1280, 1000, nil},
	{"dark", "dark", 1280, 800, []string{"now", "clusters", "execution", "timeline"}},
	{"narrow", "light", 360, 740, []string{"now", "clusters", "execution", "timeline"}},
	{"narrow-dark", "dark", 360, 740, []string{}},
}

// A view is a deep link, and what it shows of the fleet.
type view struct {
	picture string // its name, if there is one
	path    string
	sees    []string
}

// dialogs lists buttons that open a dialog, by the view's picture.
var dialogs = map[string][]string{"cluster": {"Edit", "Resume"}, "executions": {"Emergency stop"}, "execution": {"Approve", "Reject"}}

// prepareViews gives each view something to show.
func prepareViews(t *testing.T, s *system) []view {
	t.Helper()
	cluster := s.createCluster(t, v1.CreateRequest{Name: "eu-views", Labels: map[string]string{"region": "eu-west", "environment": "staging"}, Spec: json.RawMessage(`{"version":"1.34"}`)})
	if _, err := s.fleet.Syncs().Pause(t.Context(), cluster.ID, v1.SyncControl{Reason: "the network is being rebuilt"}); err != nil {
		t.Fatal(err)
	}
	version := v1.PatchRequest{Spec: json.RawMessage(`{"version":"1.35"}`)}
	if _, err := s.fleet.Clusters().Patch(t.Context(), cluster.ID, version); err != nil {
		t.Fatal(err)
	}
	pool, err := s.fleet.Collection(v1.CollectionClusters+"/"+cluster.ID+"/"+v1.CollectionNodePools).Create(t.Context(), v1.CreateRequest{Kind: v1.KindNodePool, Name: "views", Spec: json.RawMessage(`{"replicas":3}`)})
	if err != nil {
		t.Fatal(err)
	}
	execution := s.requestScale(t, "views", "more customers")
	create(t, s.host, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gpu-04"}}) // the other node runs the executions
	post(t, s.reports, `{"agent":"monitor","checkName":"fan","nodeName":"gpu-04","isFatal":true,"errorCode":"FAN-1","message":"fan 2 stands still"}`)
	one := "clusters/" + cluster.ID
	return []view{
		{"now", "", []string{"Clusters", "Sync", "Waiting for approval", "Latest changes", "scale_deployment"}},
		{"clusters", "clusters?group=region", []string{"Group by", "eu-west", "us-east"}},
		{"nodepools", "nodepools?order=created_time+asc", []string{"workers", "system"}}, // others create pools meanwhile
		{"cluster", one, []string{"eu-views", "Paused", "the network is being rebuilt", "Adapter reports", "validation"}},
		{"cluster-revisions", one + "?tab=revisions", []string{"Generation 1 → 2", "1.34", "1.35"}},
		{"", one + "?tab=timeline", []string{"cluster-created"}},
		{"", one + "?tab=yaml", []string{"version: \"1.35\""}},
		{"nodepool", "nodepools/" + pool.ID, []string{"views", "its cluster", "Generations"}},
		{"stuck", "stuck?older=0s", []string{"eu-views", "Paused"}},
		{"timeline", "timeline", []string{"cluster-created", "eu-views", "changes"}},
		{"timeline-cluster", "timeline?cluster=eu-west-03", []string{"eu-west-03", "cluster-created"}},
		{"executions", "executions", []string{"Deployment shop/views", "alice", "more customers"}},
		{"execution", execution, []string{"alice asks on local:", "Policy decision", "replicas: 2"}},
		{"nodes", "nodes?node=gpu-04", []string{"gpu-04", "FAN-1", "fan 2 stands still", "Deliveries of change events", "Delivered"}},
		{"coverage", "coverage", []string{"clusters default", "nodepools default", "Events published"}},
		{"", "clusters/00000000-0000-0000-0000-000000000000", []string{"Not Found"}},
		{"", "unknown-page", []string{"Page not found"}},
	}
}

// testViews opens every view by a deep link on each look, with its dialogs. axe finds nothing in them.
func testViews(r run) {
	t, s, b := r.T, r.system, r.browser
	views, axe := prepareViews(t, s), readAxe(t)
	for _, l := range looks {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			p := b.newPage(t, s.console)
			p.emulate(l)
			p.open("signin")
			p.sees("Demo: continue as")
			p.wantAccessible(axe, "the sign-in")
			p.signIn("admin")
			p.expectErrors("404 (Not Found)")
			for _, v := range views {
				p.open(v.path)
				p.sees(v.sees...)
				p.eventually(`return document.querySelector('.loading, [aria-busy=true]') ? 'a part is still loading' : ''`)
				if wide := evaluate[int](p, `document.documentElement.scrollWidth - innerWidth`); wide > 0 {
					t.Errorf("%q is %d px wider than the screen", v.path, wide)
				}
				p.takePicture(l, v.picture)
				p.wantAccessible(axe, strconv.Quote(v.path))
				for _, button := range dialogs[v.picture] {
					p.click("button", button)
					p.wantAccessible(axe, strconv.Quote(v.path)+" after "+button)
					p.click("button", "Close")
				}
			}
		})
	}
}

// testSignIn covers the way of a person who is not signed in to a deep link, and out again.
func testSignIn(r run) {
	t, s, b := r.T, r.system, r.browser
	p := b.newPage(t, s.console)
	p.open("clusters?text=us-east-01")
	p.sees("Sign in to Fleetloop", "Demo: continue as", "approves executions")
	p.takePicture(looks[0], "signin")
	p.click("button", "B bob")
	p.wantPath("clusters?text=us-east-01")
	p.sees("us-east-01", "1 match")
	p.expectErrors("401 (Unauthorized)") // what the page asks until it has left
	p.click("button", "Sign out")
	p.wantPath("signin")
	p.open("executions")
	p.sees("Sign in to Fleetloop")
}

// testFilters covers the filters of the lists: they select rows, and they are in the address.
func testFilters(r run) {
	t, s, b := r.T, r.system, r.browser
	p := b.newPageOf(t, s, "bob")
	p.click("nav a", "Clusters")
	p.sees("us-east-01", "us-west-02")
	p.fill("Filter by name", "us-east-0")
	p.seesNot("us-west-02")
	p.sees("us-east-01", "us-east-04", "us-east-07")
	p.fill("Label selector", "environment in (staging)")
	p.seesNot("us-east-01")
	p.sees("us-east-04", "1 match")
	p.wantPath("clusters?labels=environment+in+%28staging%29&text=us-east-0")
	p.do(chromedp.Reload())
	p.sees("us-east-04", "1 match")
	p.click("button", "Clear filter")
	p.wantPath("clusters")
	p.sees("us-west-02")
	p.do(chromedp.NavigateBack())
	p.seesNot("us-west-02")

	p.click("nav a", "Node pools")
	p.fill("Label selector", "region=us-west,environment=development")
	p.sees("2 match")
	p.wantPath("nodepools?labels=region%3Dus-west,environment%3Ddevelopment")
	p.fill("Label selector", "region=")
	p.sees("0 match", "Nothing matches the filter")
}

// takePicture writes a picture of what is on the screen, if pictures are wanted of this view.
func (p *page) takePicture(l look, name string) {
	p.Helper()
	if *screenshots == "" || name == "" || l.pictures != nil && !slices.Contains(l.pictures, name) {
		return
	}
	raw, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		p.Fatal(err)
	}
	picture, err := png.Decode(bytes.NewReader(raw))
	if err != nil {
		p.Fatal(err)
	}
	var out bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	if err := encoder.Encode(&out, reduceColors(picture)); err != nil {
		p.Fatal(err)
	}
	if err := os.MkdirAll(*screenshots, 0o755); err != nil {
		p.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*screenshots, name+"-"+l.name+".png"), out.Bytes(), 0o644); err != nil {
		p.Fatal(err)
	}
}

// reduceColors returns a picture with the 256 most frequent colours, which is a third of the size.
func reduceColors(picture image.Image) image.Image {
	counts := map[color.RGBA]int{}
	box := picture.Bounds()
	for y := box.Min.Y; y < box.Max.Y; y++ {
		for x := box.Min.X; x < box.Max.X; x++ {
			r, g, b, a := picture.At(x, y).RGBA()
			counts[color.RGBA{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8), uint8(a >> 8)}]++
		}
	}
	byCount := slices.SortedFunc(maps.Keys(counts), func(a, b color.RGBA) int { return cmp.Compare(counts[b], counts[a]) })
	var palette color.Palette
	for _, c := range byCount[:min(256, len(byCount))] {
		palette = append(palette, c)
	}
	reduced := image.NewPaletted(box, palette)
	draw.Draw(reduced, box, picture, box.Min, draw.Src)
	return reduced
}
