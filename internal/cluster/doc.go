// Package cluster reads the nodes, Devices and pods of a cluster, from files or
// from a live API server, and opens the ledger on them. Every command that
// looks at a cluster starts here.
package cluster
