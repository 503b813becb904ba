// Package cli is what all commands have in common on the command line: flags in
// groups, words to choose from, suggestions for mistyped words, the end at a
// signal, and the version.
package cli
