// Package dependencies checks docs/dependencies.md against each go.mod: each direct requirement
// must have a line, and each line a requirement.
package dependencies
