package settings

import "os"

// OSEnv returns a variable of the process's environment. It is Source.Env in a real process.
func OSEnv(name string) (string, bool) { return os.LookupEnv(name) }
