// Package docs tests the documentation:
//
//   - the commands of the pages are run, and their output is compared;
//   - every link resolves, and every picture is on a page;
//   - both languages have the same pages, with the same commands, headings, table
//     rows, code blocks and pictures in the same sections;
//   - the words of pages, chart, examples, dashboard and messages are those of the
//     vocabulary in vocabulary_test.go.
//
// The pages are all Markdown files of the repository. `make docs` runs all tests;
// `make verify` runs those that need no cluster.
//
// # Directives
//
// The text after the three backticks of a fence selects what is done with it:
//
//	sh                  is run
//	sh exits 1          is run, and its last command exits with this status
//	sh terminal         is run in a terminal of its own until the page ends, like a
//	                    server; the next block waits for its output, if it has one
//	sh norun: REASON    is not run; at most a tenth of all blocks
//	text output         is the output of the sh block before it
//	console             has commands after "$ ", each with its output; a command may
//	                    exit with status 1
//
// In output, … matches anything within a line, and any lines on a line of its own.
// Other fences are not run.
//
// The blocks of a page run in one bash session: a folder with a copy of the
// repository, bin in the PATH, and KUBECONFIG of a playground that no other test
// uses at the same time. A block ends at the first command that fails. A comment
// contains commands that a page needs and that its readers do not run, such as a
// pending pod or the name of a node. It runs in the order of the page:
//
//	<!-- docs:run
//	NODE=metax-1
//	-->
//
// Scripts that several pages need are in testdata: before.sh prepares a cluster as
// HAMi or Koordinator leaves it, chart.sh runs the components of an installed chart.
//
// <!-- docs:cluster bare --> selects a control plane without Daybreak, with
// kube-scheduler and two simulated nodes. <!-- docs:cluster none --> is for pages
// that start their own cluster or need none.
package docs
