package pgstore

// Round runs one round of pruning.
var Round = (*Pruner).pruneOnce
