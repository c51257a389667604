package console

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// rowsInOrder finds out whether the rows at rest are the ones named first to last, from top to bottom
// and in the order of Tab, each with its own link.
const rowsInOrder = `
const rows = [...document.querySelectorAll('.virtual .scroller .row')]
const names = rows.map((row) => row.querySelector('a')?.textContent ?? '')
const wrong = rows.findIndex((row, i) => names[i] !== 'pool-' + String(row.ariaRowIndex - 1).padStart(2, '0') ||
  i > 0 && (row.ariaRowIndex - rows[i - 1].ariaRowIndex !== 1 || row.getBoundingClientRect().top <= rows[i - 1].getBoundingClientRect().top))
if (wrong >= 0) return 'row ' + wrong + ' is out of order: ' + names.join(' ')
const link = rows.find((row) => row.querySelector('a').textContent === %q)?.querySelector('a')
if (!link) return %[1]q + ' is not shown: ' + names.join(' ')
return link.pathname === %q ? '' : link.href`

// testScroll covers a list that reuses the elements of its rows.
func testScroll(r run) {
	t, s, b := r.T, r.system, r.browser
	const pools, scrollSteps = 60, 10
	cluster := s.createCluster(t, v1.CreateRequest{Name: "eu-scroll", Spec: json.RawMessage(`{"version":"1.34"}`)})
	if _, err := s.fleet.Syncs().Pause(t.Context(), cluster.ID, v1.SyncControl{Reason: "a list to scroll"}); err != nil {
		t.Fatal(err)
	}
	ids := make(map[string]string, pools)
	for i := range pools {
		name := fmt.Sprintf("pool-%02d", i+1)
		pool, err := s.fleet.Collection(v1.CollectionClusters+"/"+cluster.ID+"/"+v1.CollectionNodePools).Create(t.Context(), v1.CreateRequest{Kind: v1.KindNodePool, Name: name, Spec: json.RawMessage(`{"replicas":0}`)})
		if err != nil {
			t.Fatal(err)
		}
		ids[name] = pool.ID
	}
	p := b.newPageOf(t, s, "admin")
	p.do(chromedp.EmulateViewport(1280, 500))
	p.open("nodepools?cluster=" + cluster.ID + "&order=name+asc")
	p.sees("pool-01", "eu-scroll")
	wantRow := func(t *testing.T, name string) {
		t.Helper()
		p.eventually(fmt.Sprintf(rowsInOrder, name, "/nodepools/"+ids[name]))
	}
	wantRow(t, "pool-01")
	for _, to := range []struct {
		rows int // down from where it is
		name string
	}{{20, "pool-25"}, {7, "pool-30"}, {40, "pool-60"}, {-60, "pool-01"}} {
		for range scrollSteps {
			evaluate[float64](p, fmt.Sprintf(`document.querySelector('.virtual .scroller').scrollTop += %d * 34 / %d`, to.rows, scrollSteps))
		}
		wantRow(t, to.name)
	}
	// The focus stays on the link of a row that stays in view.
	evaluate[bool](p, `(() => {
  [...document.querySelectorAll('.virtual .row a')].find((a) => a.textContent === 'pool-05').focus({ preventScroll: true })
  document.querySelector('.virtual .scroller').scrollTop += 34
  return true
})()`)
	p.eventually(`const at = document.activeElement.textContent
return at !== 'pool-05' ? 'the focus is on ' + at : document.querySelector('.virtual .scroller').scrollTop < 34 ? 'it did not scroll' : ''`)
	wantRow(t, "pool-05")
	p.do(chromedp.KeyEvent("\r"))
	p.wantPath("nodepools/" + ids["pool-05"])
}
