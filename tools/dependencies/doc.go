// Package dependencies holds docs/dependencies.md against each go.mod: its test
// wants each module that is required directly to have its line, and each line
// its module.
package dependencies
