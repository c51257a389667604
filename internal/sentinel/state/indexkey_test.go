package state

import "testing"

// FuzzParseUUID checks that an id stored as a UUID is returned unchanged.
func FuzzParseUUID(f *testing.F) {
	for _, seed := range []string{"019a8e30-7c40-7b21-9d0e-0123456789ab", "019A8E30-7c40-7b21-9d0e-0123456789ab", "", "-19a8e30-7c40-7b21-9d0e-0123456789a-"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if id, ok := parseCanonicalUUID(text); ok && formatUUID(id) != string(text) {
			t.Errorf("%q comes back as %q", text, formatUUID(id))
		}
	})
}
