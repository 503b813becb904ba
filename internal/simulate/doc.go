// Package simulate replays traces of pods over the core, to see what a cluster
// would hold under which policy.
//
// The protocol is that of the public GPU trace's own study: a run shuffles the
// trace's pods, goes on with pods drawn from it until they ask for a multiple
// of the cluster's cards, and places them one by one. Nothing departs and
// nothing is tried again. What has arrived, refused pods included, against what
// is allocated is the result; all policies see the same pods in the same order
// on the same nodes.
//
// The policy daybreak is the core itself: place.Fit and place.Rank on accounts
// of package ledger, learning of pods as they arrive. The others are published
// rules, written from their descriptions, and decide on a plain state of their
// own; the same state is the judge of all of them.
//
// Package churn studies what a trace of arrivals can't show: how whole the link
// zones stay while jobs come and go. Package chart draws.
package simulate
