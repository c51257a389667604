package v1

// ContentTypeNDJSON is the media type of a bulk load: one CreateRequest per line.
const ContentTypeNDJSON = "application/x-ndjson"

// IfExists is what a bulk load does with a name that is in use. It is the value of the query parameter if_exists.
type IfExists string

// The values of IfExists.
const (
	// IfExistsFail ends the load. It is the default.
	IfExistsFail IfExists = "fail"
	// IfExistsSkip skips the line, so that an interrupted load can be sent again.
	IfExistsSkip IfExists = "skip"
)

// A LoadResult is the result of a bulk load.
type LoadResult struct {
	Created int64 `json:"created"`
	Skipped int64 `json:"skipped"`
}
