package gputest

import "github.com/daybreak-gpu/daybreak/internal/gpu"

// Whole is the request of a container that wants n whole cards.
func Whole(n int) gpu.Request {
	return gpu.Request{Cards: n, Whole: true, Exclusive: true, Compute: gpu.FullCompute, Memory: gpu.AllMemory()}
}

// Alone is the request of a container that wants n cards to itself, with the
// given memory of each, in the words of slices.
func Alone(n int, memory gpu.MiB) gpu.Request {
	return gpu.Request{Cards: n, Exclusive: true, Compute: gpu.FullCompute, Memory: gpu.Memory{Amount: memory}}
}

// Share is the request of a container that wants a slice of one card.
func Share(compute gpu.Percent, memory gpu.MiB) gpu.Request {
	return gpu.Request{Cards: 1, Compute: compute, Memory: gpu.Memory{Amount: memory}}
}

// As returns the request for another phase of the pod's life.
func As(phase gpu.Phase, r gpu.Request) gpu.Request {
	r.Phase = phase
	return r
}
