// Package rest has the HTTP conventions that the handlers of the fleet API share: JSON bodies, the
// conditions of requests, the tokens of pages, and error answers.
package rest
