// Package docs tests the documentation: what a page asks a reader to type is
// typed, what it says comes out is compared, every link leads somewhere, and
// both languages have the same pages with the same commands.
//
// The pages are all Markdown files of the repository. `make docs` runs all of it;
// what needs no cluster is in `make verify` too.
//
// # What a page can say
//
// A fence is what it says after the three backticks:
//
//	sh                  is run
//	sh exits 1          is run, and its last command ends with this status
//	sh terminal         is run in a terminal of its own until the page ends, as a
//	                    server is; the next block waits for its output, if it has one
//	sh norun: REASON    is not run; at most a tenth of all blocks may say so
//	text output         is what the sh block before it prints
//	console             has commands after "$ ", each with what it prints; the
//	                    answer may be no (status 1)
//
// In what is printed, … stands for anything within a line, and for any lines on
// one of its own. Every other fence is there to be read.
//
// The blocks of a page are one session of bash: a folder with a copy of the
// repository, bin in the PATH, and KUBECONFIG of a playground that no other test
// uses meanwhile. A block ends at its first command that fails. What a page needs
// and a reader has already (a pod that waits, the name of a node) stands in a
// comment and is run in its turn:
//
//	<!-- docs:run
//	NODE=metax-1
//	-->
//
// A page for clusters without Daybreak says <!-- docs:cluster bare -->: it gets a
// control plane with kube-scheduler and two nodes that run pods in name only. One
// that starts its own, or needs none, says <!-- docs:cluster none -->.
package docs
