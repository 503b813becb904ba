// Package mxsml reads the cards from the vendor's management library,
// libmxsml.so, as a [discover.Snapshot], and makes slices with it.
//
// The library is loaded at run time (no cgo, nothing of the vendor's is
// linked), and it runs in a process of its own: the agent starts its own
// binary again with the hidden command [NewCommand] and asks over a pipe. What
// the library does to that process, a crash or a call that never returns,
// costs the agent one look and nothing else. Only that process imports this
// package.
//
// Only five functions are required of the library. All others are looked for
// by name and done without: versions differ in what they export.
package mxsml
