package v1

import (
	"encoding/json"
	"time"
)

// A Revision is one generation of a cluster or a node pool.
type Revision struct {
	Generation int64 `json:"generation"`
	// CreatedTime and Actor are the time and the author of the change that began the generation.
	CreatedTime time.Time `json:"created_time"`
	Actor       string    `json:"actor"`
	// Deleting reports whether that change was the request to delete the resource.
	Deleting bool            `json:"deleting,omitempty"`
	Spec     json.RawMessage `json:"spec"`
	// Labels are those at the beginning of the generation.
	Labels map[string]string `json:"labels"`
}

// A RevisionList is one page of revisions, the newest first.
type RevisionList struct {
	Items []Revision `json:"items"`
	// Continue is the token of the next page, empty on the last one.
	Continue string `json:"continue,omitempty"`
}
