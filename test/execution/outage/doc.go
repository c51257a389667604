// Package outage stops the API server for a minute while executions are in progress, and starts
// it again.
package outage
