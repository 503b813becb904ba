// Package cli is what the commands have in common on the line that somebody
// types: flags in groups, words to choose from, what a mistyped word was meant
// to be, the end at a signal, and the version.
package cli
