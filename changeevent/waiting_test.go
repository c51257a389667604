package changeevent

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

const unreadable = "fleetloop_change_events_sink_file_unreadable"

// place writes a file atomically.
func place(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// sendMany sends events of one node with the ids 0, 1, ….
func sendMany(t *testing.T, c Client, n int, told *deliveries) {
	t.Helper()
	for i := range n {
		c.SendChangeEvent(t.Context(), ChangeEvent{Action: ActionCordon, NodeName: "n", ID: fmt.Sprint(i), OnDelivery: told.add})
	}
}

// became returns the results of events: their ids and classes in order.
func (d *deliveries) became() []string {
	var all []string
	for _, x := range d.got() {
		all = append(all, strings.TrimSpace(x.ID+" "+string(x.Class)))
	}
	return all
}

// TestFilesAreWaitedFor verifies that a missing file loses no event, and that metrics
// show which file it is.
func TestFilesAreWaitedFor(t *testing.T) {
	key := strings.Repeat("1", 32)
	cases := map[string]struct {
		reason string
		change func(c *Config, file string)
		file   string
		bad    string // first content of the file; "" means that it is missing
		good   string
	}{
		"Token":      {"a Secret that comes later", func(c *Config, file string) { c.AuthTokenFile = file }, "auth_token", "", "hunter2"},
		"TokenEmpty": {"or is filled later", func(c *Config, file string) { c.AuthTokenFile = file }, "auth_token", "\n", "hunter2"},
		"TokenLines": {"or mended", func(c *Config, file string) { c.AuthTokenFile = file }, "auth_token", "hunter2\nX: y", "hunter2"},
		"Endpoint":   {"the URL is the secret", func(c *Config, file string) { c.Endpoint, c.EndpointFile = "", file }, "endpoint", "", "https://hunter2.example.com/hook"},
		"PlainHTTP":  {"a wrong URL is none", func(c *Config, file string) { c.Endpoint, c.EndpointFile = "", file }, "endpoint", "http://hunter2.example.com", "https://hunter2.example.com/hook"},
		"Key":        {"the key is in the body", func(c *Config, file string) { c.Format, c.RoutingKeyFile = FormatPagerDuty, file }, "routing_key", "", key},
		"TokenAsKey": {"what a format has as its key", func(c *Config, file string) { c.Format, c.AuthTokenFile = FormatPagerDuty, file }, "routing_key", "hunter2", key},
		"Signing":    {"nothing goes out that is not signed", func(c *Config, file string) { c.SigningKeyFile = file }, "signing_key", "", "hunter2"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "secret")
				if tc.bad != "" {
					place(t, file, tc.bad)
				}
				var log logged
				var told deliveries
				sink, reg := new(script), prometheus.NewRegistry()
				cfg := enabled(sink)
				cfg.Logger, cfg.Registerer = log.logger(), reg
				tc.change(&cfg, file)
				if err := Check(cfg); err == nil || tc.bad == "" && !strings.Contains(err.Error(), file) {
					t.Errorf("%s: Check() = %v, want that it names the file", tc.reason, err)
				}
				c := start(t, cfg)
				sendMany(t, c, 5, &told)
				time.Sleep(time.Hour)
				synctest.Wait()
				s := statsOf(t, c)
				if len(sink.got()) != 0 || len(told.got()) != 0 || !s.WaitingForFiles || s.Pending != 5 || s.OldestPendingAge != time.Hour || s.UnreadableFiles[tc.file] == "" || len(s.UnreadableFiles) != 1 {
					t.Errorf("%s: while it is missing: %d requests, %v, %+v", tc.reason, len(sink.got()), told.became(), s)
				}
				if n := value(t, reg, unreadable, "sink", "default", "file", tc.file); n != 1 {
					t.Errorf("%s: the metric says %v", tc.reason, n)
				}
				if n := strings.Count(log.String(), "level=ERROR"); n != 1 || !strings.Contains(log.String(), "events wait") {
					t.Errorf("%s: %d errors, want one:\n%s", tc.reason, n, &log)
				}

				place(t, file, tc.good)
				time.Sleep(lookEvery)
				synctest.Wait()
				if diff := cmp.Diff([]string{"0", "1", "2", "3", "4"}, told.became()); diff != "" {
					t.Errorf("%s: when it is there, told (-want +got)\n%s", tc.reason, diff)
				}
				if s := statsOf(t, c); s.WaitingForFiles || len(s.UnreadableFiles) != 0 || value(t, reg, unreadable) != 0 {
					t.Errorf("%s: then %+v", tc.reason, s)
				}
				wantCounted(t, c, reg, 5)
				if strings.Contains(log.String(), "hunter") {
					t.Errorf("%s: a secret is in the log:\n%s", tc.reason, &log)
				}
			})
		})
	}
}

// TestWaitingIsBounded verifies that events that wait for a file are limited in number
// and time, and counted.
func TestWaitingIsBounded(t *testing.T) {
	cases := map[string]struct {
		reason string
		wait   time.Duration
		close  bool // before the file exists
		late   bool // the file is written, and Close is called before it is read
		want   []string
	}{
		"Number":   {"the newest find a place", time.Minute, false, false, []string{"0 queue_full", "1 queue_full", "2", "3", "4", "5"}},
		"Age":      {"nobody wants older news, and who keeps them is told", 2 * time.Hour, false, false, []string{"0 queue_full", "1 queue_full", "2 expired", "3 expired", "4 expired", "5 expired"}},
		"Closed":   {"the end does not wait for it", time.Minute, true, false, []string{"0 queue_full", "1 queue_full", "2 shutdown", "3 shutdown", "4 shutdown", "5 shutdown"}},
		"LastLook": {"but looks once more", time.Minute, true, true, []string{"0 queue_full", "1 queue_full", "2", "3", "4", "5"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "token")
				var log logged
				var told deliveries
				sink, reg := new(script), prometheus.NewRegistry()
				cfg := enabled(sink)
				cfg.AuthTokenFile, cfg.MaxConcurrentRequests, cfg.QueueSize, cfg.MaxAge, cfg.Registerer, cfg.Logger = file, 1, 4, time.Hour, reg, log.logger()
				c := start(t, cfg)
				sendMany(t, c, 6, &told)
				time.Sleep(tc.wait)
				if !tc.close || tc.late {
					place(t, file, "t")
				}
				if !tc.close {
					time.Sleep(lookEvery)
				}
				synctest.Wait()
				began := time.Now()
				err := c.Close()
				if lost := tc.close && !tc.late; lost != (err != nil) || lost && !strings.Contains(err.Error(), "4 events not delivered") {
					t.Errorf("%s: Close gives %v", tc.reason, err)
				}
				if took := time.Since(began); took != 0 {
					t.Errorf("%s: Close took %s", tc.reason, took)
				}
				if diff := cmp.Diff(tc.want, told.became()); diff != "" {
					t.Errorf("%s: (-want +got)\n%s", tc.reason, diff)
				}
				wantCounted(t, c, reg, 6)
				if tc.close && !tc.late {
					log.want(t, file) // the reason of their loss
				}
			})
		})
	}
}

// TestLostFileIsSeen verifies that a file that disappears while its content is in use
// loses no event. Metrics show it until it is back, also if nothing is sent.
func TestLostFileIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "token")
		place(t, file, "t")
		reg := prometheus.NewRegistry()
		cfg := enabled(new(script))
		cfg.AuthTokenFile, cfg.Registerer = file, reg
		c := start(t, cfg)
		var told deliveries
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		time.Sleep(lookEvery)
		sendMany(t, c, 1, &told)
		synctest.Wait()
		if s := statsOf(t, c); s.Succeeded != 1 || s.WaitingForFiles || s.UnreadableFiles["auth_token"] == "" || value(t, reg, unreadable) != 1 {
			t.Errorf("without the file: %+v", s)
		}
		place(t, file, "t")
		time.Sleep(2 * lookEvery)
		synctest.Wait()
		if s := statsOf(t, c); len(s.UnreadableFiles) != 0 || value(t, reg, unreadable) != 0 {
			t.Errorf("with it: %+v", s)
		}
	})
}

// TestCertificatesAreWaitedFor verifies that CA certificates are treated like the other
// files.
func TestCertificatesAreWaitedFor(t *testing.T) {
	sink := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(sink.Close)
	file := filepath.Join(t.TempDir(), "ca.pem")
	cfg := enabled(nil)
	cfg.Endpoint, cfg.HTTP, cfg.CAFile = sink.URL, nil, file
	place(t, file, "no PEM certificate")
	if err := Check(cfg); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("Check() = %v, want that it names the file", err)
	}
	c := start(t, cfg)
	var told deliveries
	sendMany(t, c, 2, &told)
	if s := statsOf(t, c); !s.WaitingForFiles || s.UnreadableFiles["ca"] == "" {
		t.Errorf("without certificates: %+v", s)
	}
	place(t, file, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: sink.Certificate().Raw})))
	stop(t, c)
	if diff := cmp.Diff([]string{"0", "1"}, told.became()); diff != "" {
		t.Errorf("with them (-want +got)\n%s", diff)
	}
}
