// Package dashboard serves the page that shows a cluster's cards: every server
// with its zones, links, switches and NUMA nodes, every card with the pods on it,
// every pod that waits and why, and what is wrong.
//
// It only reads. What it serves is the model of status, explain and audit, packages
// view and audit, without what a viewer may not see. Nothing is computed while no page
// is open.
//
//	source ──► feed ──────► world ──► projection ──► stream ──► browser
//	(caches)   (debounce)   (all)     (one viewer)   (changes)
//
// A feed makes a world of the objects in the manager's caches, at most a few
// times a second however much happens, and once for all viewers. Each viewer
// gets a projection of it, without the names of pods that the viewer may not see,
// and then only the parts of it that change. A slow viewer skips worlds.
//
// On a loopback address every client sees everything. On any other the page is
// served over TLS, to users that the API server knows (TokenReview) and lets list
// nodes and Devices (SubjectAccessReview); pods are shown by name in the namespaces
// where the user may list pods.
//
// The page itself is plain HTML, CSS and JavaScript modules in the folder
// assets, built into the binary as they are.
package dashboard
