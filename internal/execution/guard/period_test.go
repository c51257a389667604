package guard

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/kubernetes/fake"
)

// TestPeriodHasBegun holds that a period counts only once it has begun, also where the
// record is looked at again at once: what is created before would be refused.
func TestPeriodHasBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &periodRecord{client: fake.NewClientset(), namespace: "executor"}
		for range 2 {
			if _, err := r.currentOrBeginPeriod(t.Context(), "objects"); !errors.As(err, new(settlingError)) {
				t.Fatalf("a period is given before it has begun: %v", err)
			}
		}
		time.Sleep(time.Second)
		p, err := r.currentOrBeginPeriod(t.Context(), "objects")
		if err != nil || p.ID == "" {
			t.Fatalf("after a second there is %+v: %v", p, err)
		}
		other := &periodRecord{client: r.client, namespace: "executor"} // another replica, or after a restart
		if again, err := other.currentOrBeginPeriod(t.Context(), "objects"); err != nil || again.ID != p.ID {
			t.Errorf("another replica has %+v: %v", again, err)
		}
	})
}
