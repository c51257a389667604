package pgstore

import "github.com/fleetloop/fleetloop/internal/fleetapi/timeline"

// PageOf returns the statement that reads a page, with its parameters.
func PageOf(q timeline.Query) (statement string, args []any) {
	c := buildPageQuery(&q)
	return c.sql.String(), c.args
}

// BucketsOf returns the statement that counts events, with its parameters.
func BucketsOf(q timeline.BucketQuery) (statement string, args []any) {
	c := buildBucketsQuery(&q)
	return c.sql.String(), c.args
}
