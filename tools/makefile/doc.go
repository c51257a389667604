// Package makefile holds the tests of the Makefile and of the scripts that it
// runs.
package makefile
