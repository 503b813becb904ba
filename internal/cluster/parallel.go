package cluster

import (
	"context"
	"runtime"

	"k8s.io/client-go/util/workqueue"
)

// InParallel calls do for the numbers below n, on as many processors as there
// are, in any order. What do writes must belong to its number.
func InParallel(n int, do func(i int)) {
	workqueue.ParallelizeUntil(context.Background(), runtime.GOMAXPROCS(0), n, do, workqueue.WithChunkSize(16))
}
