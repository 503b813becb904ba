//go:build !race

package place_test

const raceDetector = false
