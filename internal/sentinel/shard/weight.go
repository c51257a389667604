package shard

import (
	"encoding/binary"
	"math/bits"
)

// hashID returns a 64-bit hash of an id. It must never change, nor differ between machines, because
// replicas of all versions must agree on the owners.
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

// computeOwnerWeight returns the weight of an owner, given by the hash of its name, for the hash of
// an id. The highest weight wins.
func computeOwnerWeight(ownerHash, idHash uint64) uint64 {
	return mixBits(ownerHash ^ bits.RotateLeft64(idHash, 32))
}

// mixBits spreads every bit of x over all bits: the finalizer of SplitMix64, a bijection.
func mixBits(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// A rendezvousShare is the share of one of several owners, by rendezvous hashing: each owner has a weight for
// a hash, and the highest wins. So a new owner takes resources only for itself, and one that leaves
// does not change the resources of the others. Two owners that count each other in never both own
// the same hash, whatever other owners they count in.
//
// The zero value contains everything.
type rendezvousShare struct {
	own    uint64
	before []uint64 // others that win a tie
	after  []uint64 // others that lose a tie
}

// newRendezvousShare returns the share of self among others, which do not contain self.
func newRendezvousShare(self string, others []string) rendezvousShare {
	s := rendezvousShare{own: hashID([]byte(self))}
	for _, other := range others {
		if other < self {
			s.before = append(s.before, hashID([]byte(other)))
		} else {
			s.after = append(s.after, hashID([]byte(other)))
		}
	}
	return s
}

func (s *rendezvousShare) containsHash(idHash uint64) bool {
	own := computeOwnerWeight(s.own, idHash)
	for _, other := range s.before {
		if computeOwnerWeight(other, idHash) >= own {
			return false
		}
	}
	for _, other := range s.after {
		if computeOwnerWeight(other, idHash) > own {
			return false
		}
	}
	return true
}
