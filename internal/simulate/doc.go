// Package simulate plays jobs over the core, to see what a cluster would hold
// under which policy. One engine plays all runs; there are two studies.
//
// # A trace
//
// The protocol is that of the public GPU trace's own study: a run shuffles the
// trace's pods, goes on with pods drawn from it until they ask for a multiple
// of the cluster's cards, and places them one by one. Nothing departs and
// nothing is tried again. What has arrived, refused pods included, against what
// is allocated is the result.
//
// # The topology study
//
// A trace that only fills a cluster never shows how well multi-card jobs are
// linked: it is departures that leave holes, and holes in the wrong places that
// split the next job.
//
// Some servers of eight cards are joined as a shape says. Jobs arrive as a
// Poisson process, run for an exponentially distributed time whose mean is the
// unit of time, and leave. A mix says how many of them ask for a part of a card
// and how many for one, two, four or eight whole cards. The load is the mean
// number of cards asked for at a time, as a part of all cards.
//
// Waiting jobs stand in one queue. Whenever cards come free the first 64 of them
// are tried in order, and those that fit start: large jobs can be overtaken, as
// in a Kubernetes queue. Nothing moves once started. The model has no CPU, no
// host memory and no QoS classes. Measured are
//
//   - the jobs of each size that got all cards in one zone
//   - the in-zone pairs of all multi-card jobs, against the most that any set of
//     idle cards on any server had to offer at that instant. That optimum is
//     found by trying all sets, with nothing of the core in it
//   - waits by size of job, in mean running times
//   - the part of all cards that was booked, on average over time
//
// # Policies
//
// All policies see the same jobs on the same servers. The policy daybreak is the
// core itself, a place.Board, and expects more jobs like those that run. The
// others are published rules, written from their descriptions. What any of them
// chooses is booked in the same accounts of package ledger, and must fit.
package simulate
