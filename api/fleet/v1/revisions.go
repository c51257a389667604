package v1

import (
	"encoding/json"
	"time"
)

// A Revision is one generation of a cluster or a node pool.
type Revision struct {
	Generation int64 `json:"generation"`
	// CreatedTime is when the change was made that began the generation, and Actor who
	// made it.
	CreatedTime time.Time `json:"created_time"`
	Actor       string    `json:"actor"`
	// Deleting is true if that change was the request to delete the resource.
	Deleting bool            `json:"deleting,omitempty"`
	Spec     json.RawMessage `json:"spec"`
	// Labels are those of the beginning of the generation.
	Labels map[string]string `json:"labels"`
}

// A RevisionList is one page of revisions, the newest first.
type RevisionList struct {
	Items []Revision `json:"items"`
	// Continue is the token of the next page, empty at its end.
	Continue string `json:"continue,omitempty"`
}
