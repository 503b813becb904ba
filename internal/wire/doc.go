// Package wire has the names that others chose: labels, annotations, the table of
// resources, and the limits on what is read.
//
// Three packages read what is in them: request what pods ask for, inventory what
// nodes have, allocation what pods hold. Nothing they read is trusted. Types,
// ranges and sizes are checked; fields that a newer writer added are ignored. What
// is wrong with a node affects that node, never the process.
package wire
