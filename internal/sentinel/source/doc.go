// Package source reads the resources of a collection from the fleet API.
package source
