// Package wire has the names that others chose: labels, annotations, the table of
// resources, and the limits on what is read.
//
// What is in them belongs to three rooms: request reads what pods ask for,
// inventory what nodes have, allocation what pods hold. Nothing they read is
// trusted. Types, ranges and sizes are checked; fields that a newer writer added
// are ignored. What is wrong with a node costs that node, never the process.
package wire
