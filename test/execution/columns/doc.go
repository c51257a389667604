// Package columns tests the columns and field selectors of executions in kubectl against a real
// API server.
package columns
