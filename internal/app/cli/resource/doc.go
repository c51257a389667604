// Package resource holds the resources of a fleet as the command line sees them: references to them,
// documents that describe them, and their output.
package resource
