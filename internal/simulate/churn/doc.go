// Package churn studies how well multi-card jobs are linked while jobs come and
// go. A trace that only fills a cluster never shows it: it is departures that
// leave holes, and holes in the wrong places that split the next job.
//
// # The model
//
// Some servers of eight cards, joined as a [Shape] says. Jobs arrive as a
// Poisson process, run for an exponentially distributed time whose mean is the
// unit of time, and leave. A [Mix] says how many of them ask for a part of a
// card and how many for one, two, four or eight whole cards. The load is the
// mean number of cards asked for at a time, as a part of all cards.
//
// Waiting jobs stand in one queue. Whenever cards come free the first
// [Options.Backfill] of them are tried in order, and whoever fits starts: large
// jobs can be overtaken, as in a Kubernetes queue. Nothing moves once started.
//
// A rule picks server and cards. Ours asks the core exactly as the scheduler
// does, and knows of the mix only what it has seen arrive; the others are
// written here from what their projects document. All rules see the same jobs
// at the same times.
//
// # What is measured
//
//   - the jobs of two and of four cards that got all cards in one zone
//   - the in-zone pairs of all multi-card jobs, against the most that any set of
//     idle cards on any server had to offer at that instant. That optimum is
//     found by trying all sets, with nothing of the core in it
//   - waits by size of job, in mean running times
//   - the part of all cards that was booked, on average over time
//
// The first tenth of the jobs fills the empty servers and is not measured.
//
// The model has no CPU, no memory beside the cards', and no QoS classes; package
// simulate has those, and no departures.
package churn
