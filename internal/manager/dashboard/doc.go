// Package dashboard serves the page that shows a cluster's cards: every server
// with its zones, links, switches and NUMA nodes, every card with who is on it,
// every pod that waits and why, and what is wrong.
//
// It only reads. What it shows comes from where status, explain and audit have
// it: a [cluster.Snapshot], looked at by packages report and audit. Nothing is
// worked out while nobody looks.
//
//	Source ──► Feed ──► world ──► projection ──► stream ──► browser
//	(caches)   (calm)   (all)     (one viewer)   (changes)
//
// A [Feed] makes a world of the objects in the manager's caches, at most a few
// times a second however much happens, and once for all viewers. Each viewer
// gets a projection of it, without the names of pods that he may not see, and
// then only the parts of it that change. A slow viewer skips worlds.
//
// On a loopback address whoever reaches the page sees everything. On any other
// the page is served over TLS, to users that the API server knows (TokenReview)
// and lets list nodes and Devices (SubjectAccessReview); pods are shown by name
// in the namespaces where they may list pods.
//
// The page itself is plain HTML, CSS and JavaScript modules in the folder
// assets, built into the binary as they are.
package dashboard
