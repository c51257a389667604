package pgstore

// Round lets tests prune when they like.
var Round = (*Pruner).pruneOnce
