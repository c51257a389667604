package allinone

import (
	"io"
	"testing"
)

func TestWhenTheRunIsShownLive(t *testing.T) {
	cases := map[string]struct {
		reason   string
		demo     DemoConfig
		terminal bool
		term     string
		want     bool
	}{
		"Terminal": {"somebody looks", DemoConfig{Enabled: true, View: "auto"}, true, "xterm", true},
		"File":     {"nobody looks", DemoConfig{Enabled: true, View: "auto"}, false, "xterm", false},
		"Dumb":     {"the terminal cannot be drawn on", DemoConfig{Enabled: true, View: "auto"}, true, "dumb", false},
		"Unknown":  {"nothing is known of the terminal", DemoConfig{Enabled: true, View: "auto"}, true, "", false},
		"Forced":   {"the user knows better", DemoConfig{Enabled: true, View: "live"}, false, "", true},
		"Log":      {"lines were asked for", DemoConfig{Enabled: true, View: "log"}, true, "xterm", false},
		"NoDemo":   {"there is nothing to show", DemoConfig{View: "live"}, true, "xterm", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			env := Env{Stdout: io.Discard, Stderr: io.Discard, Terminal: tc.terminal, LookupEnv: func(key string) (string, bool) {
				return tc.term, key == "TERM" && tc.term != ""
			}}
			s, err := newScreen(env, tc.demo, t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			if s.live != tc.want {
				t.Errorf("%s: live is %t, want %t", tc.reason, s.live, tc.want)
			}
			if err := s.closeLogFile(); err != nil {
				t.Error(err)
			}
		})
	}
}
