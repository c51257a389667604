package client

import "testing"

// TestListAgain verifies that a sequence can be used again, and then starts with the first page.
func TestListAgain(t *testing.T) {
	t.Parallel()
	list := newClient(t, Config{}, keysetOf(8, 0)).Clusters().List(t.Context(), ListOptions{PageSize: 3})
	for range 2 {
		n := 0
		for _, err := range list {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		if n != 8 {
			t.Errorf("got %d items, want 8", n)
		}
	}
}
