// Package e2e runs the binaries as a user would, several at a time, on a real
// PostgreSQL, a real RabbitMQ and the other brokers, and looks only at what
// comes out: cloud events, answers, metrics, log lines, exit codes.
//
// The binaries are built once per run. Everything that is started ends with
// the test process, however that ends.
package e2e
