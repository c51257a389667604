package shard

import (
	"encoding/binary"
	"math/bits"
)

// hashID gives 64 bits for an id. It must never change, nor differ between
// machines: all replicas of all versions have to agree on who owns what.
func hashID(id []byte) uint64 {
	h := uint64(len(id)) ^ 0x9e3779b97f4a7c15
	for len(id) >= 8 {
		h = mixBits(h ^ binary.LittleEndian.Uint64(id))
		id = id[8:]
	}
	if len(id) > 0 {
		var rest [8]byte
		copy(rest[:], id)
		h = mixBits(h ^ binary.LittleEndian.Uint64(rest[:]))
	}
	return h
}

// ownerWeight is how much an owner, by the hash of its name, wants the hash of an
// id; the one that wants it most has it.
func ownerWeight(owner, h uint64) uint64 { return mixBits(owner ^ bits.RotateLeft64(h, 32)) }

// mixBits spreads every bit of x over all: the finalizer of SplitMix64, a
// bijection.
func mixBits(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// A share is what one of several owners has, by rendezvous: each owner has a
// weight for a hash, and the highest wins. So an owner that comes takes only
// for itself, and one that goes leaves the others' as it was. And of two
// owners that count each other in, never both have the same hash, whomever
// else they count in.
//
// The zero value is all there is.
type share struct {
	own    uint64
	before []uint64 // others that win a tie
	after  []uint64 // and of those that lose it
}

// newShare gives what self has beside others, which do not contain it.
func newShare(self string, others []string) share {
	s := share{own: hashID([]byte(self))}
	for _, other := range others {
		if other < self {
			s.before = append(s.before, hashID([]byte(other)))
		} else {
			s.after = append(s.after, hashID([]byte(other)))
		}
	}
	return s
}

func (s *share) containsHash(h uint64) bool {
	own := ownerWeight(s.own, h)
	for _, other := range s.before {
		if ownerWeight(other, h) >= own {
			return false
		}
	}
	for _, other := range s.after {
		if ownerWeight(other, h) > own {
			return false
		}
	}
	return true
}
