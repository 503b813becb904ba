// Package gputest builds the nodes and requests that tests of several packages
// speak of. It is for tests only.
package gputest
