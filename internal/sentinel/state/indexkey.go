package state

import (
	"encoding/binary"
	"encoding/hex"
	"hash/maphash"
)

// An indexKey is the stored form of an id. It holds a UUID as its 16 bytes, and any other id as 16
// bytes of a hash with secret seeds, which are unique in practice.
type indexKey struct {
	id    [16]byte
	kind  slotState // slotNamed or 0
	shard uint8
}

func (x *DueIndex) newKey(id []byte) indexKey {
	var key indexKey
	uuid, isUUID := parseCanonicalUUID(id)
	if isUUID {
		key.id = uuid
	} else {
		key.kind = slotNamed
		binary.BigEndian.PutUint64(key.id[:8], maphash.Bytes(x.seeds[1], id))
		binary.BigEndian.PutUint64(key.id[8:], maphash.Bytes(x.seeds[2], id))
	}
	key.shard = uint8(maphash.Bytes(x.seeds[0], key.id[:])) //nolint:gosec // the lowest bits; a shard uses the highest
	return key
}

// parseCanonicalUUID parses a UUID in the one form that formatUUID writes: 8-4-4-4-12 digits, in lower
// case.
func parseCanonicalUUID(text []byte) (id [16]byte, ok bool) {
	if len(text) != 36 || text[8] != '-' || text[13] != '-' || text[18] != '-' || text[23] != '-' {
		return id, false
	}
	at := 0
	for i := range id {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			at++ // a hyphen
		}
		high, low := parseLowerHexDigit(text[at]), parseLowerHexDigit(text[at+1])
		if high|low > 15 {
			return id, false
		}
		id[i] = high<<4 | low
		at += 2
	}
	return id, true
}

// parseLowerHexDigit returns the value of a digit, or more than 15 for any other character.
func parseLowerHexDigit(c byte) (valueOrFF byte) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	}
	return 0xff
}

func formatUUID(id [16]byte) string {
	text := make([]byte, 0, 36)
	text = hex.AppendEncode(text, id[:4])
	for _, part := range [][]byte{id[4:6], id[6:8], id[8:10], id[10:]} {
		text = append(text, '-')
		text = hex.AppendEncode(text, part)
	}
	return string(text)
}
