// Package cli is what all commands share: flags in groups, completion,
// suggestions for mistyped words, interruption by a signal, and the version.
package cli
