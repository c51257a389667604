// Package columns has what kubectl shows of executions, and by what it finds
// them, come from a real API server.
package columns
