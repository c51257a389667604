// Package kubebedtest provides one control plane for the tests of a package, and a
// namespace in it for each test.
//
// The first test that requests it starts the control plane; Main stops it at the end.
// If the process is killed, the programs die with it. A failed test shows the output of
// the programs since its start. StartProcess runs a controller against it.
//
// GardenMain, Garden and NewGardenProject do the same with a garden.
package kubebedtest

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fleetloop/fleetloop/devstack/kubebed"
)

// Patience is the maximum wait for anything that happens soon.
const Patience = 2 * time.Minute

// PollEvery is the interval of checks at the start of a wait.
const PollEvery = 20 * time.Millisecond

// longestPoll is the interval of checks in a long wait. Each check takes CPU time from the
// programs that the test waits for.
const longestPoll = 100 * time.Millisecond

const (
	callBound = 60 * time.Second
	logLines  = 60 // lines of each program that a failed test shows
)

//nolint:gochecknoglobals // one control plane per test process; testing offers no other place to keep it
var sharedControlPlane = newNoBed[*kubebed.Bed]("Main")

// Main runs the tests of a package, checks for leaked goroutines, and stops the control
// plane if a test started it. Call it from TestMain.
func Main(m goleak.TestingM, o kubebed.Options, options ...goleak.Option) {
	if o.Log == nil {
		o.Log = newWarningLogger()
	}
	sharedControlPlane = newSharedBed("control plane", o.Log, func() (*kubebed.Bed, error) {
		return kubebed.Start(context.Background(), o)
	})
	sharedControlPlane.verifyTestMain(m, options...)
}

// Bed returns the control plane of this package's tests.
func Bed(tb testing.TB) *kubebed.Bed {
	tb.Helper()
	return sharedControlPlane.startOnceAndShowLogs(tb, func(bed *kubebed.Bed) { ShowLogsOnFailure(tb, bed) })
}

// ShowLogsOnFailure logs the further output of a bed's programs if the test has failed at its
// end. Bed and Namespace do so already.
func ShowLogsOnFailure(tb testing.TB, bed *kubebed.Bed) {
	tb.Helper()
	begin := logFileSizes(bed)
	tb.Cleanup(func() {
		if !tb.Failed() {
			return
		}
		for path := range logFileSizes(bed) {
			text, err := os.ReadFile(path) //nolint:gosec // a log file of the bed
			if err != nil {
				tb.Logf("read what a program said: %v", err)
				continue
			}
			said := strings.Split(strings.TrimSpace(string(text[min(begin[path], len(text)):])), "\n")
			tb.Logf("---- %s, the end of what it said meanwhile\n%s", filepath.Base(path), strings.Join(said[max(0, len(said)-logLines):], "\n"))
		}
	})
}

// logFileSizes returns the sizes of the log files.
func logFileSizes(bed *kubebed.Bed) map[string]int {
	files, _ := filepath.Glob(filepath.Join(bed.Dir(), "logs", "*.log")) // its only error is a bad pattern
	lengths := make(map[string]int)
	for _, path := range files {
		if info, err := os.Stat(path); err == nil {
			lengths[path] = int(info.Size())
		}
	}
	return lengths
}

// Namespace creates a namespace for the test, with a service account "default", and
// deletes it when the test ends.
func Namespace(tb testing.TB) string {
	tb.Helper()
	client, err := kubernetes.NewForConfig(Bed(tb).Config())
	if err != nil {
		tb.Fatal(err)
	}
	ns, err := client.CoreV1().
		Namespaces().
		Create(tb.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: namespacePrefix(tb.Name())}}, metav1.CreateOptions{})
	if err != nil {
		tb.Fatalf("make a namespace: %v", err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), callBound)
		defer cancel()
		if err := client.CoreV1().Namespaces().Delete(ctx, ns.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			tb.Errorf("delete namespace %q: %v", ns.Name, err)
		}
	})
	// No Pod is admitted without the account, and there may be no controller that
	// creates it.
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	_, err = client.CoreV1().ServiceAccounts(ns.Name).Create(tb.Context(), account, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		tb.Fatalf("make the service account of namespace %q: %v", ns.Name, err)
	}
	return ns.Name
}

// namespacePrefix converts the name of a test to the prefix of a namespace's name.
func namespacePrefix(test string) string {
	const most = 40 // of the 63 allowed characters, less the random ones
	p := regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(test), "-")
	return strings.Trim(p[:min(len(p), most)], "-") + "-"
}

// Eventually calls check until it returns no error, for Patience at most. The interval
// grows from PollEvery to longestPoll.
func Eventually(tb testing.TB, check func(ctx context.Context) error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), Patience)
	defer cancel()
	const tenth = 10 // of the time waited so far passes until the next check
	began := time.Now()
	timer := time.NewTimer(PollEvery)
	defer timer.Stop()
	var last error // last error before the timeout
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		// The rate limiter of a client has no error value for this case.
		ended := ctx.Err() != nil || strings.Contains(err.Error(), "would exceed context deadline")
		if !ended || last == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			tb.Fatalf("not within %s: %v", Patience, last)
		case <-timer.C:
		}
		timer.Reset(min(max(PollEvery, time.Since(began)/tenth), longestPoll))
	}
}
