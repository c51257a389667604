// Package resource holds the resources of a fleet as the command line sees them.
//
// It finds the resources of references (Ref), reads documents that describe resources (Document),
// and writes resources for users and for programs: as tables, JSON, YAML, names and full
// descriptions. Data from a server is displayed only: tables and descriptions remove control
// sequences of a terminal.
package resource
