// Package report holds the commands that tell about a cluster's cards and what
// they print. Decisions are package place's; reading is package cluster's; here
// is only how it looks.
package report
