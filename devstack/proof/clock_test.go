package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/fleetloop/fleetloop/devstack/proof/faults"
)

// newTestOverlay returns an overlay in a folder of the test.
func newTestOverlay(t *testing.T) *overlay {
	t.Helper()
	o, err := newOverlay(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// buildWith builds packages of the module with an overlay, with the flags of the programs.
func buildWith(t *testing.T, o *overlay, args ...string) {
	t.Helper()
	flag, err := o.writeFlag()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"build", "-trimpath", "-tags=grpcnotrace", flag}, args...)...)
	cmd.Dir, cmd.Env = filepath.Join("..", ".."), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func newTestClock(t *testing.T) clock {
	t.Helper()
	c, err := newClock(filepath.Join(t.TempDir(), "clock"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// wantAhead holds that a program shows a time that is ahead, whose clock is set to that.
func wantAhead(t *testing.T, c clock, ahead time.Duration, show func() time.Time) {
	t.Helper()
	if err := c.set(ahead); err != nil {
		t.Fatal(err)
	}
	before := time.Now()
	got, most := show().Sub(before), time.Since(before)
	if got < ahead-time.Millisecond || got > ahead+most {
		t.Errorf("the clock is %s ahead, want %s", got, ahead)
	}
}

// showGoTime is a program that prints its wall clock and the time that passed since its start, for each line that it
// reads. An edit makes it remember its start.
const showGoTime = `package main

import (
	"bufio"
	"fmt"
	"os"
	"time"
)

func main() {
	began := time.Time{}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Println(time.Now().UnixMicro(), time.Since(began).Microseconds())
	}
}
`

// TestGoClock holds that the wall clock of a running Go program can be set, that its monotonic clock stays as it is, and
// that a bug can be planted as well.
func TestGoClock(t *testing.T) {
	t.Parallel()
	o, dir := newTestOverlay(t), t.TempDir()
	source, program := filepath.Join(dir, "main.go"), filepath.Join(dir, "show")
	if err := os.WriteFile(source, []byte(showGoTime), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := o.addClock(t.Context(), "."); err != nil {
		t.Fatal(err)
	}
	if err := o.edit(source, "time.Time{}", "time.Now()"); err != nil {
		t.Fatal(err)
	}
	buildWith(t, o, "-o", program, source)

	c := newTestClock(t)
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = []string{clockEnv + "=" + string(c)}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	defer func() { _ = in.Close() }()
	for _, ahead := range []time.Duration{0, 30 * time.Second, -30 * time.Second, math.MaxInt32 * time.Second, 0} {
		wantAhead(t, c, ahead, func() time.Time {
			var shown, passed int64
			if _, err := fmt.Fprintln(in); err != nil {
				t.Fatal(err)
			}
			if _, err := fmt.Fscanln(out, &shown, &passed); err != nil {
				t.Fatal(err)
			}
			if passed := time.Duration(passed) * time.Microsecond; passed < 0 || passed > time.Since(began) {
				t.Errorf("%s have passed since the start, want at most %s", passed, time.Since(began))
			}
			return time.UnixMicro(shown)
		})
	}
}

// TestDatabaseClock holds that the wall clock of a running PostgreSQL can be set.
func TestDatabaseClock(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "proof-clock-") //nolint:usetesting // PostgreSQL runs as another user if this test is root
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	shown := &topology{dir: dir, out: t.Output()}
	env, err := shown.createDatabaseClock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if env == nil {
		if runtime.GOOS == "linux" {
			t.Fatal("there is no C compiler: run 'make setup-check'")
		}
		t.Skip("the clock of PostgreSQL can only be set on Linux")
	}
	newDisk := func(name string) (*disk, error) { return shown.newDisk(name, 0) }
	d, err := startPrimary(t.Context(), newDisk, env, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.close(); err != nil {
			t.Error(err)
		}
	})
	for _, ahead := range []time.Duration{0, 30 * time.Second, -30 * time.Second, 0} {
		wantAhead(t, shown.databaseClock, ahead, func() (now time.Time) {
			err := d.onPrimary(t.Context(), func(conn *pgx.Conn) error {
				return conn.QueryRow(context.WithoutCancel(t.Context()), "select clock_timestamp()").Scan(&now)
			})
			if err != nil {
				t.Fatal(err)
			}
			return now
		})
	}
}

// TestChooseClock holds that the fault sets the clocks of all processes of the product and of PostgreSQL, if that is
// possible, and that it sets them right again.
func TestChooseClock(t *testing.T) {
	t.Parallel()
	top := &topology{groups: map[string][]*process{}}
	want := map[string]bool{}
	for _, name := range append(components(), brokerNATS) {
		top.order = append(top.order, name)
		top.groups[name] = []*process{{name: name + "-0", clock: newTestClock(t)}}
		want[name+"-0"] = name != brokerNATS
	}
	choose := func() map[string]bool {
		chosen := map[string]bool{brokerNATS + "-0": false}
		for pick := range 100 {
			target := top.chooseTarget(faults.Fault{Kind: faults.Clock, Pick: pick, Ahead: time.Second})
			chosen[target.Name] = true
		}
		return chosen
	}
	if diff := cmp.Diff(want, choose()); diff != "" {
		t.Errorf("without the clock of PostgreSQL, -want +got\n%s", diff)
	}
	top.databaseClock, want["postgresql"] = newTestClock(t), true
	if diff := cmp.Diff(want, choose()); diff != "" {
		t.Errorf("with the clock of PostgreSQL, -want +got\n%s", diff)
	}

	synctest.Test(t, func(t *testing.T) {
		target := top.chooseTarget(faults.Fault{Kind: faults.Clock, Pick: 0, Ahead: -7 * time.Second, Lasts: time.Minute})
		ended := make(chan error, 1)
		go func() { ended <- target.Inject(t.Context(), t.Context()) }()
		synctest.Wait()
		wantSeconds(t, top.databaseClock, -7)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		wantSeconds(t, top.databaseClock, 0)
	})
}

func wantSeconds(t *testing.T, c clock, want int64) {
	t.Helper()
	text, err := os.ReadFile(string(c))
	if err != nil {
		t.Fatal(err)
	}
	if got := int64(binary.NativeEndian.Uint64(text)); got != want {
		t.Errorf("the clock is %d s ahead, want %d", got, want)
	}
}
