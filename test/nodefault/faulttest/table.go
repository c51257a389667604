package faulttest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
)

// GetFaultPrinterRow returns the row of a node in kubectl get nodefaults: the cells by the names of
// their columns.
func (c *Cluster) GetFaultPrinterRow(name string) map[string]string {
	c.Helper()
	cfg := kubebedtest.Bed(c.TB).Config()
	hc, err := rest.HTTPClientFor(cfg)
	if err != nil {
		c.Fatal(err)
	}
	req, err := http.NewRequestWithContext(c.Context(), http.MethodGet, cfg.Host+"/apis/fleetloop.io/v1alpha1/nodefaults/"+name, http.NoBody)
	if err != nil {
		c.Fatal(err)
	}
	req.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	resp, err := hc.Do(req)
	if err != nil {
		c.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	var table metav1.Table
	if err := json.NewDecoder(resp.Body).Decode(&table); err != nil || len(table.Rows) != 1 {
		c.Fatalf("%s: %d rows: %v", resp.Status, len(table.Rows), err)
	}
	row := map[string]string{}
	for i, column := range table.ColumnDefinitions {
		row[strings.ToUpper(column.Name)] = fmt.Sprint(table.Rows[0].Cells[i])
	}
	return row
}
