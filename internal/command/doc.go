// Package command holds the commands that answer questions about a cluster's
// cards: their flags, and how package view's answers are printed.
package command
