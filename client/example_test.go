package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/client"
)

// serveFleet stands in for a fleet API with one cluster. Another client changes a label of it just
// before the first patch.
func serveFleet() *httptest.Server {
	const path = v1.BasePath + "/clusters"
	cluster := v1.Resource{ID: "1", Name: "eu-1", Generation: 1, Labels: map[string]string{"region": "eu"}}
	writes := 0
	write := func(w http.ResponseWriter, status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("ETag", fmt.Sprintf("%q", fmt.Sprint(cluster.Generation)))
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("watch") == "" {
			write(w, http.StatusOK, v1.List{Items: []v1.Resource{cluster}})
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprintf(w, "event: bookmark\nid: c1\ndata: {}\n\nevent: changed\nid: c2\ndata: {\"id\":\"1\",\"name\":\"eu-1\"}\n\n")
	})
	mux.HandleFunc("GET "+path+"/1", func(w http.ResponseWriter, _ *http.Request) { write(w, http.StatusOK, cluster) })
	mux.HandleFunc("PATCH "+path+"/1", func(w http.ResponseWriter, r *http.Request) {
		if writes++; writes == 1 {
			cluster.Generation++
			cluster.Labels["team"] = "blue"
		}
		if r.Header.Get("If-Match") != fmt.Sprintf("%q", fmt.Sprint(cluster.Generation)) {
			write(w, http.StatusPreconditionFailed, v1.Problem{Title: "Precondition Failed"})
			return
		}
		var in v1.PatchRequest
		_ = json.NewDecoder(r.Body).Decode(&in)
		cluster.Generation++
		cluster.Labels = *in.Labels
		write(w, http.StatusOK, cluster)
	})
	mux.HandleFunc("PUT "+path+"/1/statuses", func(w http.ResponseWriter, _ *http.Request) { write(w, http.StatusCreated, v1.AdapterStatus{}) })
	mux.HandleFunc("GET "+path+"/2", func(w http.ResponseWriter, _ *http.Request) {
		write(w, http.StatusNotFound, v1.Problem{Title: "Not Found", Code: "not_found", Detail: "cluster 2 not found"})
	})
	return httptest.NewServer(mux)
}

// newClient returns a client of the stand-in.
func newClient() (c *client.Client, closeAll func()) {
	server := serveFleet()
	c, err := client.New(client.Config{Endpoint: server.URL})
	if err != nil {
		panic(err)
	}
	return c, func() {
		c.CloseIdle()
		server.Close()
	}
}

func Example() {
	server := serveFleet()
	defer server.Close()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "token")
	if err := os.WriteFile(file, []byte("s3cret\n"), 0o600); err != nil {
		fmt.Println(err)
		return
	}

	// The file is read again when the token in it is rotated.
	c, err := client.New(client.Config{Endpoint: server.URL, Token: client.FileToken(file)})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.CloseIdle()
	cluster, err := c.Clusters().Get(context.Background(), "1")
	fmt.Println(cluster.Name, err)
	// Output: eu-1 <nil>
}

func ExampleCollection_List() {
	c, closeAll := newClient()
	defer closeAll()
	for cluster, err := range c.Clusters().List(context.Background(), client.ListOptions{Labels: "region in (eu, us)"}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(cluster.ID, cluster.Name)
	}
	// Output: 1 eu-1
}

func ExampleCollection_Watch() {
	c, closeAll := newClient()
	defer closeAll()
	cursor := "" // from now on; a program that restarts continues at the cursor that it stored
	for event, err := range c.Clusters().Watch(context.Background(), client.ListOptions{}, cursor) {
		switch {
		case client.IsExpired(err):
			fmt.Println("watch from now on, and list the clusters after the first bookmark")
			return
		case err != nil:
			fmt.Println(err)
			return
		}
		cursor = event.Cursor
		if event.Type == v1.WatchChanged {
			fmt.Println(event.Item.Name, "changed, at", cursor)
			break
		}
	}
	// Output: eu-1 changed, at c2
}

// A change that depends on the resource is applied to the version that was read. If another client
// was faster, read and apply again.
func ExampleCollection_PatchIf() {
	c, closeAll := newClient()
	defer closeAll()
	ctx := context.Background()
	for {
		cluster, etag, err := c.Clusters().GetWithETag(ctx, "1")
		if err != nil {
			fmt.Println(err)
			return
		}
		labels := cluster.Labels
		labels["tier"] = "prod"
		cluster, err = c.Clusters().PatchIf(ctx, cluster.ID, etag, v1.PatchRequest{Labels: &labels})
		if client.IsChanged(err) {
			fmt.Println("changed meanwhile")
			continue
		}
		fmt.Println(cluster.Labels, err)
		return
	}
	// Output:
	// changed meanwhile
	// map[region:eu team:blue tier:prod] <nil>
}

func ExampleCollection_Report() {
	c, closeAll := newClient()
	defer closeAll()
	stored, err := c.Clusters().Report(context.Background(), "1", v1.Report{
		Adapter: "dns", ObservedGeneration: 1,
		Conditions: []v1.ReportCondition{{Type: "Available", Status: v1.ConditionTrue, Reason: "RecordsCreated"}},
	})
	fmt.Println(stored, err)
	// Output: true <nil>
}

func ExampleError() {
	c, closeAll := newClient()
	defer closeAll()
	_, err := c.Clusters().Get(context.Background(), "2")
	if problem, ok := errors.AsType[*client.Error](err); ok {
		fmt.Println(problem.Status, problem.Problem.Code)
	}
	fmt.Println(client.IsNotFound(err), err)
	// Output:
	// 404 not_found
	// true GET /clusters/2: 404 Not Found: cluster 2 not found
}
