package hyperfleettest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
)

// ServeRequest handles a request to a path below the base, without a network.
func (s *Server) ServeRequest(method, path, body string) (status int, answer []byte) {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), method, base+path, strings.NewReader(body)))
	return w.Code, w.Body.Bytes()
}

// CreateResource creates a resource and returns its id. Labels are pairs of name and value. It
// panics if the API refuses.
func (s *Server) CreateResource(collection, name string, labelPairs ...string) (id string) {
	in := struct {
		Name   string            `json:"name"`
		Labels map[string]string `json:"labels,omitempty"`
		Spec   struct{}          `json:"spec"`
	}{Name: name, Labels: map[string]string{}}
	for i := 0; i < len(labelPairs); i += 2 {
		in.Labels[labelPairs[i]] = labelPairs[i+1]
	}
	var out struct{ ID string }
	s.mustRequest(http.MethodPost, "/"+collection, in, &out)
	return out.ID
}

// PatchSpec changes the spec of a resource, and so its generation.
func (s *Server) PatchSpec(collection, id, spec string) {
	s.mustRequest(http.MethodPatch, "/"+collection+"/"+id, map[string]json.RawMessage{"spec": json.RawMessage(spec)}, nil)
}

// RequestDeletion requests the deletion of a resource.
func (s *Server) RequestDeletion(collection, id string) {
	s.mustRequest(http.MethodDelete, "/"+collection+"/"+id, nil, nil)
}

// ReportAllConditionsTrue reports, as an adapter, that a resource is available, and finalized, at a generation.
func (s *Server) ReportAllConditionsTrue(collection, id, adapter string, generation int64) {
	in := report{Adapter: adapter, ObservedGeneration: generation}
	for _, c := range []string{"Available", "Applied", "Health", "Finalized"} {
		in.Conditions = append(in.Conditions, condition{Type: c, Status: yes})
	}
	s.mustRequest(http.MethodPut, "/"+collection+"/"+id+"/statuses", in, nil)
}

func (s *Server) mustRequest(method, path string, requestBody, responseBody any) {
	body, err := json.Marshal(requestBody)
	if err != nil {
		panic(err)
	}
	status, answer := s.ServeRequest(method, path, string(body))
	if status > 299 {
		panic(fmt.Sprintf("%s %s: %d %s", method, path, status, answer))
	}
	if responseBody == nil {
		return
	}
	if err := json.Unmarshal(answer, responseBody); err != nil {
		panic(err)
	}
}
