// Package source reads the resources of a collection from the fleet API.
//
// A Walker reads the collection page by page, with the paging and filtering that the server
// supports. A Scanner reads the items of a page into one reused struct.
package source
