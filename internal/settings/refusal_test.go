package settings_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/settings"
)

func TestLoadRefusesFiles(t *testing.T) {
	cases := map[string]struct {
		reason string
		file   string // behind the minimal one, which is line 1
		want   []string
	}{
		"UnknownKey": {
			"a misspelt key names its neighbour", "pol_interval: 5s",
			[]string{`s.yaml:2:1: unknown key "pol_interval"; did you mean "poll_interval"?`},
		},
		"OtherCase": {
			"camel case is seen through", "resourceType: clusters",
			[]string{`s.yaml:2:1: unknown key "resourceType"; did you mean "resource_type"?`},
		},
		"Swapped": {
			"swapped letters too", "wrokers: 3",
			[]string{`s.yaml:2:1: unknown key "wrokers"; did you mean "workers"?`},
		},
		"Elsewhere": {
			"a key of another section names that", "timeout: 5s",
			[]string{`s.yaml:2:1: unknown key "timeout"; did you mean "api.timeout"?`},
		},
		"NoNeighbour": {
			"nothing is made up", "kubernetes: 5s",
			[]string{`s.yaml:2:1: unknown key "kubernetes"`},
		},
		"UnknownInList": {
			"within lists as well", "resource_selector:\n  - label: a\n    valeu: b",
			[]string{`s.yaml:4:5: unknown key "resource_selector[0].valeu"; did you mean "resource_selector[0].value"?`},
		},
		"Twice": {
			"a key given twice", "workers: 3\nworkers: 4",
			[]string{`s.yaml:3:1: key "workers": is set twice, first at line 2`},
		},
		"Alias": {
			"a key and its other name", "poll_interval: 3s\npollInterval: 4s",
			[]string{`s.yaml:3:1: key "poll_interval": is set here as "pollInterval" and at line 2 as "poll_interval"; remove one of them`},
		},
		"NoUnit": {
			"a duration without its unit", "poll_interval: 5",
			[]string{`s.yaml:2:16: key "poll_interval": is a duration and needs a unit, such as "5s"; got "5"`},
		},
		"NoDuration": {
			"a text that is no duration", "poll_interval: soon",
			[]string{`s.yaml:2:16: key "poll_interval": must be a duration such as "5s" or "1m30s"; got "soon"`},
		},
		"Negative": {
			"a rule broken in the file says where", "poll_interval: -5s",
			[]string{`s.yaml:2:16: key "poll_interval": must be more than 0s; got -5s`},
		},
		"Zero": {
			"zero is no interval", "poll_interval: 0s",
			[]string{`s.yaml:2:16: key "poll_interval": must be more than 0s; got 0s`},
		},
		"Element": {
			"a rule within a list", "resource_selector:\n  - value: b\n  - {label: c, times: -1}",
			[]string{
				`s.yaml:3:5: key "resource_selector[0].label": is required`,
				`s.yaml:4:23: key "resource_selector[1].times": must be more than 0; got -1`,
			},
		},
		"Enum": {
			"a closed set names its members", "resource_type: nodepol",
			[]string{`s.yaml:2:16: key "resource_type": must be one of clusters, nodepools; got "nodepol"; did you mean "nodepools"?`},
		},
		"Types": {
			"every type says what it wants, and all at once",
			"workers: many\nenabled: 'yes'\nratio: [1]\nhosts: a\nextra: 1\nresource_selector: {a: b}\nmessage_data: [x]\nsize: -1\nmaybe: 3",
			[]string{
				`s.yaml:2:10: key "workers": must be an integer, not a string`,
				`s.yaml:3:10: key "enabled": must be true or false, not a string`,
				`s.yaml:4:8: key "ratio": must be a number, not a list`,
				`s.yaml:5:8: key "hosts": must be a list, not a string`,
				`s.yaml:6:8: key "extra": must be a mapping, not a number`,
				`s.yaml:7:20: key "resource_selector": must be a list, not a mapping`,
				`s.yaml:8:15: key "message_data": must be a mapping, not a list`,
				`s.yaml:9:7: key "size": must be an integer, not negative; got "-1"`,
				`s.yaml:10:8: key "maybe": must be true or false, not a number`,
			},
		},
		"Range": {
			"a number past its type, or past its rule", "workers: 300\nsize: 99999999999999999999",
			[]string{
				`s.yaml:2:10: key "workers": is a number outside the range of the setting; got "300"`,
				`s.yaml:3:7: key "size": must be an integer, not a number`,
			},
		},
		"Infinite": {
			"infinity is no ratio", "ratio: .inf",
			[]string{`s.yaml:2:8: key "ratio": must be a number; got ".inf"`},
		},
		"Rule": {
			"a number past its rule", "workers: 0\nhosts: [a, b, c, d]",
			[]string{
				`s.yaml:2:10: key "workers": must be at least 1; got 0`,
				`s.yaml:3:8: key "hosts": must have at most 3 entries`,
			},
		},
		"Unmarshaler": {
			"a type with its own parser", "log_level: loud",
			[]string{`s.yaml:2:12: key "log_level": is invalid: slog: level string "loud": unknown name; got "loud"`},
		},
		"Null": {
			"a key without a value", "workers:\nresource_selector:\napi:",
			[]string{
				`s.yaml:2:9: key "workers": has no value; set one or remove the key`,
				`s.yaml:4:1: key "api": is set twice, first at line 1`,
			},
		},
		"Template": {
			"a value that is no text among the templates", "message_data:\n  a: [b]\n  c:",
			[]string{
				`s.yaml:3:6: key "message_data.a": must be a string or a mapping, not a list`,
				`s.yaml:4:5: key "message_data.c": must be a string or a mapping, not nothing`,
			},
		},
		"TemplateTwice": {
			"a template given twice", "message_data:\n  a: b\n  a: c",
			[]string{`s.yaml:4:3: key "message_data.a": is set twice, first at line 3`},
		},
		"Merge": {
			"merge keys are refused with a way out", "extra:\n  <<: {a: 1}",
			[]string{`s.yaml:3:3: key "extra": has a merge key (<<), which is not supported; write the keys out`},
		},
		"Tag": {
			"a tag is not dropped in silence", "resource_type: !env HOME",
			[]string{`s.yaml:2:16: key "resource_type": has the tag !env, which is not supported`},
		},
		"KeyKind": {
			"a key that is a list", "? [a]\n: b\n? ~\n: c",
			[]string{`s.yaml:2:3: key "": must have string keys, not a list`, `s.yaml:4:3: key "": must have string keys, not nothing`},
		},
		"SecondDocument": {
			"two documents in one file", "---\nworkers: 4",
			[]string{`s.yaml:2: a second YAML document begins here; use one document`},
		},
		"Syntax": {
			"what is no YAML says at which line", "workers: [1",
			[]string{`s.yaml:2: not valid YAML: did not find expected ',' or ']'`},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got config
			_, err := settings.Load(&got, settings.Source{File: "s.yaml", FileData: []byte(minimal + tc.file + "\n")})
			if err == nil {
				t.Fatalf("%s: loaded, want %q", tc.reason, tc.want)
			}
			if diff := cmp.Diff(tc.want, strings.Split(err.Error(), "\n")); diff != "" {
				t.Errorf("%s: Load() (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestLoadRefusesTexts(t *testing.T) {
	cases := map[string]struct {
		reason string
		env    []string
		args   []string
		want   []string
	}{
		"Required": {
			reason: "what is missing says how to give it",
			want:   []string{`key "api.endpoint": is required; set it in the file or with API_ENDPOINT or with --api`},
		},
		"Rules": {
			reason: "a broken rule names the variable or the flag",
			env:    []string{"API_ENDPOINT", "nowhere", "WORKERS", "101"}, args: []string{"--poll-interval", "0s"},
			want: []string{
				`flag --poll-interval: key "poll_interval": must be more than 0s; got 0s`,
				`env API_ENDPOINT: key "api.endpoint": must be a URL such as "http://host:8080"; got "nowhere"`,
				`env WORKERS: key "workers": must be at most 100; got 101`,
			},
		},
		"Types": {
			reason: "so does a value of the wrong type",
			env: []string{
				"API_ENDPOINT", "http://a", "POLL_INTERVAL", "5", "SIZE", "-1", "RATIO", "NaN", "EXTRA", "a=1,b",
				"MAYBE", "perhaps", "HOSTS", "a,,b",
			},
			args: []string{"--enabled=perhaps", "--extra=a=x"},
			want: []string{
				`env POLL_INTERVAL: key "poll_interval": is a duration and needs a unit, such as "5s"; got "5"`,
				`env SIZE: key "size": must be an integer, not negative; got "-1"`,
				`env RATIO: key "ratio": must be a number; got "NaN"`,
				`flag --enabled: key "enabled": must be true or false; got "perhaps"`,
				`env MAYBE: key "maybe": must be true or false; got "perhaps"`,
				`env HOSTS: key "hosts": entry 2 of the list is empty`,
				`env EXTRA: key "extra": entry 2 of the map is not of the form key=value`,
				`flag --extra: key "extra": entry "a" of the map must be an integer; got "x"`,
			},
		},
		"TwoVariables": {
			reason: "two variables for one setting",
			env:    []string{"API_ENDPOINT", "http://a", "POLL_INTERVAL", "5s", "SENTINEL_POLL", "5s"},
			want:   []string{`env SENTINEL_POLL: key "poll_interval": is also set by POLL_INTERVAL; unset one of them`},
		},
		"TwiceInMap": {
			reason: "a key of a map given twice",
			env:    []string{"API_ENDPOINT", "http://a", "EXTRA", "a=1,a=2"},
			want:   []string{`env EXTRA: key "extra": entry "a" of the map is set twice`},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got config
			_, err := settings.Load(&got, settings.Source{Env: newEnv(tc.env...), Flags: newFlags(t, tc.args...)})
			if err == nil {
				t.Fatalf("%s: loaded, want %q", tc.reason, tc.want)
			}
			if diff := cmp.Diff(tc.want, strings.Split(err.Error(), "\n")); diff != "" {
				t.Errorf("%s: Load() (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestLoadExplainsRules(t *testing.T) {
	type sink struct {
		Name  string   `key:"name" validate:"required,max=5"`
		URL   string   `key:"url" validate:"omitempty,http_url"`
		Kinds []string `key:"kinds" validate:"max=2,dive,oneof=red green"`
	}
	var cfg struct {
		CertFile string            `key:"cert_file" validate:"required_with=KeyFile"`
		KeyFile  string            `key:"key_file" validate:"required_with=CertFile"`
		Password settings.Secret   `key:"password" validate:"omitempty,min=8"`
		Wait     time.Duration     `key:"wait" validate:"min=1h"`
		Share    float64           `key:"share" validate:"gte=0,lt=1"`
		Most     uint              `key:"most" validate:"lte=3"`
		Sinks    []sink            `key:"sinks" validate:"required,dive"`
		Labels   map[string]string `key:"labels" validate:"dive,max=2"`
		Host     string            `key:"host" validate:"hostname_rfc1123"`
	}
	const file = `key_file: k
password: hunter2
wait: 59m
share: 1
most: 4
labels: {a: toolong}
host: a_b
sinks:
- {name: x, url: 'ftp://x'}
- {name: y, kinds: [red, blue]}
- {name: longer, kinds: [red, red, red]}
- {url: 'http:/x'}
`
	_, err := settings.Load(&cfg, settings.Source{File: "b.yaml", FileData: []byte(file)})
	want := []string{
		`b.yaml:2:11: key "password": must have at least 8 characters`,
		`b.yaml:3:7: key "wait": must be at least 1h; got 59m0s`,
		`b.yaml:4:8: key "share": must be less than 1; got 1`,
		`b.yaml:5:7: key "most": must be at most 3; got 4`,
		`b.yaml:6:13: key "labels[a]": must have at most 2 characters; got "toolong"`,
		`b.yaml:7:7: key "host": must be a host name of letters, digits, hyphens and dots; got "a_b"`,
		`b.yaml:9:18: key "sinks[0].url": must be a URL such as "http://host:8080"; got "ftp://x"`,
		`b.yaml:10:26: key "sinks[1].kinds[1]": must be one of red, green; got "blue"`,
		`b.yaml:11:10: key "sinks[2].name": must have at most 5 characters; got "longer"`,
		`b.yaml:11:25: key "sinks[2].kinds": must have at most 2 entries`,
		`b.yaml:12:3: key "sinks[3].name": is required`,
		`b.yaml:12:9: key "sinks[3].url": must be a URL such as "http://host:8080"; got "http:/x"`,
		`key "cert_file": is required together with "key_file"; set it in the file`,
	}
	if err == nil {
		t.Fatal("loaded, want errors")
	}
	if diff := cmp.Diff(want, strings.Split(err.Error(), "\n")); diff != "" {
		t.Errorf("Load() (-want +got):\n%s", diff)
	}
}

func TestLoadBoundsAliases(t *testing.T) {
	// Ten levels of ten aliases each stand for ten thousand million texts.
	var b strings.Builder
	b.WriteString(minimal + "message_data:\n  a0: &a0 {x: y}\n")
	for i := 1; i <= 10; i++ {
		fmt.Fprintf(&b, "  a%d: &a%d {", i, i)
		for j := range 10 {
			fmt.Fprintf(&b, "k%d: *a%d, ", j, i-1)
		}
		b.WriteString("}\n")
	}
	var got config
	_, err := settings.Load(&got, settings.Source{File: "bomb.yaml", FileData: []byte(b.String())})
	if err == nil || !strings.Contains(err.Error(), "more than 10000 values, aliases included") {
		t.Errorf("Load() = %.200v, want the bomb refused", err)
	}

	_, err = settings.Load(&got, settings.Source{File: "loop.yaml", FileData: []byte(minimal + "message_data: &m\n  again: *m\n")})
	if err == nil {
		t.Error("loaded a mapping that contains itself")
	}

	got = config{}
	_, err = settings.Load(&got, settings.Source{FileData: []byte(minimal + "poll_interval: &d 7s\nmax_age: 8s\nhosts: &h [a]\nmessage_data: {a: &t .x, b: *t}\n")})
	if err != nil || len(got.MessageData) != 2 || got.MessageData[1].Value != ".x" {
		t.Errorf("Load() = %v, %+v, want honest aliases to work", err, got.MessageData)
	}
}

func TestLoadBoundsErrors(t *testing.T) {
	var b strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&b, "key%04d: x\n", i)
	}
	var got config
	_, err := settings.Load(&got, settings.Source{File: "s.yaml", FileData: []byte(b.String())})
	if err == nil {
		t.Fatal("loaded")
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 51 || lines[50] != "and 951 more" {
		t.Errorf("%d lines, the last %q, want 50 and the count of the rest", len(lines), lines[len(lines)-1])
	}
}

func TestErrorsShowNoSecret(t *testing.T) {
	type config struct {
		Password settings.Secret `key:"password" env:"PASSWORD" validate:"omitempty,min=20"`
		Pin      int             `key:"pin" env:"PIN" secret:"true"`
		URL      string          `key:"url" secret:"true" validate:"omitempty,url"`
	}
	for name, src := range map[string]settings.Source{
		"File":  {File: "s.yaml", FileData: []byte("password: hunter2\npin: hunter2\nurl: hunter2\n")},
		"Kinds": {File: "s.yaml", FileData: []byte("password: [hunter2]\npin: {a: hunter2}\n")},
		"Env":   {Env: newEnv("PASSWORD", "hunter2", "PIN", "hunter2")},
	} {
		t.Run(name, func(t *testing.T) {
			var cfg config
			_, err := settings.Load(&cfg, src)
			if err == nil || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("Load() = %v, want errors that show no secret", err)
			}
		})
	}
}

func TestTagsThatMakeNoSense(t *testing.T) {
	type loop struct {
		Next []loop `key:"next"`
	}
	cases := map[string]struct {
		reason string
		cfg    any
		want   string
	}{
		"Value": {"Load must be able to fill it", config{}, "want a pointer to a struct"},
		"Nil":   {"a nil pointer can not be filled", (*config)(nil), "want a pointer to a struct"},
		"Type": {"a type that has no text", &struct {
			C chan int `key:"c"`
		}{}, `"c" has type chan int`},
		"Hidden": {"a field that can not be set", &struct {
			a int `key:"a"`
		}{}, "not exported"},
		"SameKey": {"two fields with one key", &struct {
			A int `key:"a"`
			B int `key:"b" alias:"a"`
		}{}, `two fields for key "a"`},
		"Default": {"a default that is none", &struct {
			A int `key:"a" default:"x"`
		}{}, `default of "a": must be an integer; got "x"`},
		"SecretFlag": {"a secret on the command line", &struct {
			A settings.Secret `key:"a" flag:"a"`
		}{}, "a flag would show it"},
		"EnvOfStructs": {"a list of structs in a variable", &struct {
			A []pair `key:"a" env:"A" validate:"dive"`
		}{}, "cannot have env, flag or default"},
		"EnvInList": {"a variable for each element", &struct {
			A []struct {
				B int `key:"b" env:"B"`
			} `key:"a"`
		}{}, "part of a list or map"},
		"SecretList": {"a secret that is a list", &struct {
			A []string `key:"a" secret:"true"`
		}{}, "no scalar"},
		"Dive": {"rules that would never be checked", &struct {
			A []pair `key:"a"`
		}{}, `need validate:"dive"`},
		"UnknownRule": {"a rule that does not exist, of a value that is not checked", &struct {
			A string `key:"a" validate:"omitempty,emial"`
		}{}, `"a" has the unknown rule "emial"`},
		"Loop": {"a type within itself", &loop{}, "nests too deep"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, tc.want) {
					t.Errorf("%s: panic %q, want %q", tc.reason, got, tc.want)
				}
			}()
			_, _ = settings.Load(tc.cfg, settings.Source{})
		})
	}
}
