// Package docs holds a test that runs the commands of the documentation.
//
// The test extracts every sh block of README.md, docs/tutorial and docs/how-to,
// and runs the blocks of a page in page order in one bash process per
// environment. An HTML comment on the line before a block names its environment;
// a comment that no block follows sets the default of the page:
//
//	<!-- run: none -->          no server; the default
//	<!-- run: up -->            fleetloop up --demo, with its try.sh sourced
//	<!-- run: kube -->          fleetloop up --demo --kube=embedded, likewise
//	<!-- run: cluster -->       a Kubernetes API server with the chart installed
//	<!-- run: no (reason) -->   not run
//
// A yaml block whose first line is a file name in a comment, such as
// "# values.yaml", is written to that file before the commands that follow it.
package docs
