package hyperfleettest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"time"
)

// A resource is a stored resource.
type resource struct {
	kind   Kind
	id     string
	name   string
	parent string // id of the parent

	labels     map[string]string
	spec       json.RawMessage
	generation int64

	created, updated time.Time
	deleted          *time.Time

	reports     map[string]*report // by adapter
	reconciled  condition
	lastKnown   condition
	transitions map[string]condition // of <Adapter>Successful
}

type wire struct {
	ID              string            `json:"id"`
	Kind            string            `json:"kind"`
	Name            string            `json:"name"`
	Href            string            `json:"href"`
	Labels          map[string]string `json:"labels,omitempty"`
	Spec            json.RawMessage   `json:"spec"`
	Generation      int64             `json:"generation"`
	CreatedTime     time.Time         `json:"created_time"`
	UpdatedTime     time.Time         `json:"updated_time"`
	CreatedBy       string            `json:"created_by"`
	UpdatedBy       string            `json:"updated_by"`
	DeletedTime     *time.Time        `json:"deleted_time,omitempty"`
	DeletedBy       string            `json:"deleted_by,omitempty"`
	OwnerReferences *reference        `json:"owner_references,omitempty"`
	Tenancy         struct{}          `json:"tenancy"`
	Status          any               `json:"status"`
}

type reference struct {
	ID   string `json:"id"`
	Kind string `json:"kind"`
	Href string `json:"href"`
}

func (s *Server) buildHref(r *resource) string {
	if p := s.resources[r.parent]; p != nil {
		return s.buildHref(p) + "/" + r.kind.Plural + "/" + r.id
	}
	return base + "/" + r.kind.Plural + "/" + r.id
}

func (s *Server) buildWireResource(r *resource) wire {
	const who = "owner@example.com"
	w := wire{
		ID: r.id, Kind: r.kind.Name, Name: r.name, Href: s.buildHref(r), Labels: r.labels, Spec: r.spec, Generation: r.generation,
		CreatedTime: r.created, UpdatedTime: r.updated, CreatedBy: who, UpdatedBy: who, DeletedTime: r.deleted,
		Status: s.buildStatusOfEra(r),
	}
	if r.deleted != nil {
		w.DeletedBy = who
	}
	if p := s.resources[r.parent]; p != nil {
		w.OwnerReferences = &reference{ID: p.id, Kind: p.kind.Name, Href: s.buildHref(p)}
	}
	return w
}

// newUUIDv7 returns a UUID of version 7: ids ascend with the time of creation.
func (s *Server) newUUIDv7(now time.Time) string {
	s.serial++
	ms := now.UnixMilli()
	return fmt.Sprintf("%08x-%04x-7%03x-8%03x-%012x", uint32(ms>>16), uint16(ms), s.serial>>24&0xfff, s.serial>>12&0xfff, s.serial) //nolint:gosec // cut on purpose
}

func dnsLabel() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`) }

// findRequestedResource returns the resource that a path names.
func (s *Server) findRequestedResource(k Kind, r *http.Request) (*resource, *answer) {
	found := s.resources[r.PathValue("id")]
	if found == nil || found.kind.Plural != k.Plural || r.PathValue("parent") != "" && r.PathValue("parent") != found.parent {
		a := newNotFoundAnswer(k.Name, r.PathValue("id"))
		return nil, &a
	}
	return found, nil
}

func (s *Server) handleCreateResource(k Kind) func(*http.Request) answer {
	return func(r *http.Request) answer {
		var in struct {
			Kind   string            `json:"kind"`
			Name   string            `json:"name"`
			Labels map[string]string `json:"labels"`
			Spec   json.RawMessage   `json:"spec"`
		}
		if a := decodeBody(r, false, &in); a != nil {
			return *a
		}
		parent := r.PathValue("parent")
		if parent != "" && s.resources[parent] == nil {
			return newNotFoundAnswer(k.Parent, parent)
		}
		if !dnsLabel().MatchString(in.Name) || len(in.Name) < 3 || len(in.Name) > 53 {
			return newErrorAnswer(
				http.StatusBadRequest,
				"name must be a DNS label",
				fieldError{Field: "name", Constraint: "pattern", Message: "name must be a DNS label", Value: in.Name},
			)
		}
		for _, other := range s.resources {
			if other.kind.Plural == k.Plural && other.name == in.Name && other.parent == parent {
				return newErrorAnswer(http.StatusConflict, k.Name+" "+in.Name+" already exists")
			}
		}
		if in.Spec == nil {
			in.Spec = json.RawMessage(`{}`)
		}
		now := time.Now().UTC()
		created := &resource{
			kind: k, id: s.newUUIDv7(now), name: in.Name, parent: parent, labels: in.Labels, spec: in.Spec, generation: 1,
			created: now, updated: now, reports: map[string]*report{}, transitions: map[string]condition{},
		}
		s.resources[created.id] = created
		s.updateReconciledConditions(created, now)
		a := answer{http.StatusCreated, s.buildWireResource(created)}
		created.truncateTimes()
		return a
	}
}

// truncateTimes truncates times to the precision of the database.
func (r *resource) truncateTimes() {
	r.created, r.updated = r.created.Truncate(time.Microsecond), r.updated.Truncate(time.Microsecond)
}

func (s *Server) handleGetResource(k Kind) func(*http.Request) answer {
	return func(r *http.Request) answer {
		found, a := s.findRequestedResource(k, r)
		if a != nil {
			return *a
		}
		return answer{http.StatusOK, s.buildWireResource(found)}
	}
}

func (s *Server) handlePatchResource(k Kind) func(*http.Request) answer {
	return func(r *http.Request) answer {
		found, a := s.findRequestedResource(k, r)
		if a != nil {
			return *a
		}
		var in struct {
			Labels *map[string]string `json:"labels"`
			Spec   json.RawMessage    `json:"spec"`
		}
		if a := decodeBody(r, true, &in); a != nil {
			return *a
		}
		if found.deleted != nil {
			return newErrorAnswer(http.StatusConflict, k.Name+" is being deleted")
		}
		changed := false
		if in.Spec != nil && !bytes.Equal(in.Spec, found.spec) {
			found.spec, changed = in.Spec, true
		}
		if in.Labels != nil && fmt.Sprint(*in.Labels) != fmt.Sprint(found.labels) {
			found.labels, changed = *in.Labels, true
		}
		if changed {
			s.bumpGenerationAndConditions(found, time.Now().UTC())
		}
		return answer{http.StatusOK, s.buildWireResource(found)}
	}
}

// bumpGenerationAndConditions increments the generation.
func (s *Server) bumpGenerationAndConditions(r *resource, now time.Time) {
	r.generation++
	r.updated = now
	s.updateReconciledConditions(r, now)
	r.truncateTimes()
}

func (s *Server) handleMarkDeletedWithChildren(k Kind) func(*http.Request) answer {
	return func(r *http.Request) answer {
		found, a := s.findRequestedResource(k, r)
		if a != nil {
			return *a
		}
		now := time.Now().UTC()
		s.markDeleted(found, now)
		for _, child := range s.resources {
			if child.parent == found.id {
				s.markDeleted(child, now)
			}
		}
		gone := answer{http.StatusAccepted, s.buildWireResource(found)}
		s.removeIfFinalized(found)
		return gone
	}
}

func (s *Server) markDeleted(r *resource, now time.Time) {
	if r.deleted == nil {
		r.deleted = &now
		s.bumpGenerationAndConditions(r, now)
	}
}

func (s *Server) handleForceDelete(k Kind) func(*http.Request) answer {
	return func(r *http.Request) answer {
		found, a := s.findRequestedResource(k, r)
		if a != nil {
			return *a
		}
		if found.deleted == nil {
			return newErrorAnswer(http.StatusConflict, k.Name+" is not being deleted")
		}
		delete(s.resources, found.id)
		return answer{status: http.StatusNoContent}
	}
}

// hasChildren reports whether r has child resources.
func (s *Server) hasChildren(r *resource) bool {
	for _, other := range s.resources {
		if other.parent == r.id {
			return true
		}
	}
	return false
}
