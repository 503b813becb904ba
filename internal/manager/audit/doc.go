// Package audit keeps checking that no card is booked twice and that what the
// cluster says of its cards can be true. It is what "daybreak audit" does, done
// all the time by the leading manager from the objects that its caches hold: it
// asks the API server for nothing.
//
// A finding must be seen twice, some seconds apart: caches are filled object by
// object, and what moved in between may look wrong once. One that is confirmed
// is an Event on its pods and its node, told once for as long as it lasts, and a
// figure that alerts go by. With it the manager works out what the cluster's
// cards are used for: what is allocated on each node, how many pods wait, and how
// much of what is free is of no use.
//
// Changes are collected: there is at most one audit in an interval, however
// much happens, and none while nothing does, but for one now and then, since
// time alone can make a lock stuck.
package audit
