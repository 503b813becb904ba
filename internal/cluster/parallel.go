package cluster

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// InParallel calls do for the numbers below n, on as many processors as there
// are, in any order. What do writes must belong to its number.
func InParallel(n int, do func(i int)) {
	const batch = 16 // numbers taken at a time, so that taking them costs little
	var wait sync.WaitGroup
	var next atomic.Int64
	for range min(runtime.GOMAXPROCS(0), (n+batch-1)/batch) {
		wait.Go(func() {
			for {
				end := int(next.Add(batch))
				for i := end - batch; i < min(end, n); i++ {
					do(i)
				}
				if end >= n {
					return
				}
			}
		})
	}
	wait.Wait()
}
