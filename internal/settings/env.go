package settings

import "os"

// OSEnv looks up a variable of the process's environment; it is Source.Env
// in a real process.
func OSEnv(name string) (string, bool) { return os.LookupEnv(name) }
