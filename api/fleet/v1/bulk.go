package v1

// ContentTypeNDJSON is the media type of a bulk load: one CreateRequest a
// line.
const ContentTypeNDJSON = "application/x-ndjson"

// IfExists says what a bulk load does with a name that is in use. It is the
// value of the query parameter of that name.
type IfExists string

// The values of Existing.
const (
	// IfExistsFail ends the load there. It is the default.
	IfExistsFail IfExists = "fail"
	// IfExistsSkip leaves the resource that is there as it is and goes on, so
	// that a load that was cut short can be sent again.
	IfExistsSkip IfExists = "skip"
)

// A LoadResult is what came of a bulk load.
type LoadResult struct {
	Created int64 `json:"created"`
	Skipped int64 `json:"skipped"`
}
