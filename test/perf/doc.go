// Command perf measures how fast the scheduler is compared with plain kube-scheduler
// in the same run:
//
//	make bench        100 and 500 nodes, at most 20 minutes
//	make bench-full   everything that docs/performance.md quotes
//
// It starts a real etcd and API server, makes nodes that stand still, creates
// the pods, and starts a scheduler after them. What counts is the time from the
// first binding to the last, as a watch shows them. The two schedulers take
// turns, and the median of their rounds is reported. Plain kube-scheduler is the
// same library in a process of the same binary, with the same limits on
// requests, and counts metax-tech.com resources like any other.
//
// What is measured is in a plan, a YAML file. Progress goes to standard error,
// a table to standard output, and everything to a JSON file.
package main
