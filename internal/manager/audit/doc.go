// Package audit keeps checking that no card is booked twice and that what the
// cluster reports of its cards can be true. It is "daybreak audit", run all the
// time by the leading manager on the objects in its caches.
//
// A finding must be seen twice, some seconds apart: caches are filled object by
// object, and a half-read change may look wrong once. A confirmed finding is an
// Event on its pods and its node, once for as long as it lasts, and a metric for
// alerts. The audit also computes what the cluster's cards are used for: what is
// allocated on each node, how many pods wait, and how much of the free capacity is
// of no use.
//
// Changes are collected: there is at most one audit in an interval, and none
// while nothing changes, except one now and then, since time alone can make a
// lock stuck.
package audit
