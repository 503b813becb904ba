// Package hostile is a collection of invalid objects: with wrong types, huge sizes,
// control characters, numbers that overflow, cards that are there twice and links
// that lead nowhere.
//
// The decoders are tested with it one by one, fuzzers start from it, and the
// running system gets all of it at once: a bad object may cost its own node,
// with a sentence that says why, and never anything else.
//
// [Pods] are valid, and as large as an API server takes them in one way or another:
// package cost bounds what they may cost.
package hostile
