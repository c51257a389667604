package execcli

// Explain is explain, for tests.
func Explain(err error, doing string) error { return explain(err, doing) }
