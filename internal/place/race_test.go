//go:build race

package place_test

// raceDetector: the race detector allocates on its own account.
const raceDetector = true
