// Package outage takes the API server away for a minute while executions are
// under way, and gives it back.
package outage
