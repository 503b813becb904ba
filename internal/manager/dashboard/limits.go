package dashboard

import (
	"fmt"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
)

// How many tokens are reviewed that were not accepted lately: a second, and
// at once, of one source and of all sources together. That is no load on the API
// server, and one source takes a tenth of it.
const (
	sourceRate, sourceBurst = 5, 20
	totalRate, totalBurst   = 50, 200
	// rememberedSources bounds the memory of them; an idle source has its whole
	// budget again long before it is forgotten.
	rememberedSources = 4096
	sourceForgotten   = time.Minute
)

// tokenBudget bounds how often the API server reviews unknown tokens.
type tokenBudget struct {
	mu      sync.Mutex
	clock   clock.PassiveClock
	sources *cache.LRUExpireCache // source: *rate.Limiter
	total   *rate.Limiter
}

func newTokenBudget(clk clock.PassiveClock) *tokenBudget {
	return &tokenBudget{
		clock: clk, sources: cache.NewLRUExpireCacheWithClock(rememberedSources, clk), total: rate.NewLimiter(totalRate, totalBurst),
	}
}

// admit reports whether a token from the source is reviewed now. What a source
// sends in excess does not count against the others.
func (b *tokenBudget) admit(source string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	known, _ := b.sources.Get(source)
	limiter, ok := known.(*rate.Limiter)
	if !ok {
		limiter = rate.NewLimiter(sourceRate, sourceBurst)
	}
	b.sources.Add(source, limiter, sourceForgotten)
	now := b.clock.Now()
	return limiter.AllowN(now, 1) && b.total.AllowN(now, 1)
}

// sourceOf returns what counts as one source: the IPv4 address of the connection,
// or the /64 of its IPv6 address, which one machine has for itself. Headers with
// other addresses are ignored, since every client can write them: all clients of a
// proxy are one source.
func sourceOf(remote string) string {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return remote
	}
	address := at.Addr().Unmap().WithZone("")
	if address.Is4() {
		return address.String()
	}
	return netip.PrefixFrom(address, 64).Masked().String()
}

const (
	// mostStreams bounds what all viewers may cost, and userStreams what one may.
	mostStreams = 128
	userStreams = 16
)

var (
	errUserStreams = fmt.Errorf("this user has %d open pages already: close one", userStreams)
	errMostStreams = fmt.Errorf("%d pages are open already: try again later", mostStreams)
)

// streams counts the streams that are open.
type streams struct {
	mu    sync.Mutex
	total int
	users map[string]int
}

// open counts one more stream of the user, who may have most. The caller closes
// it once.
func (s *streams) open(user string, most int) (closed func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.users[user] >= most && most < mostStreams:
		return nil, errUserStreams
	case s.total >= mostStreams:
		return nil, errMostStreams
	}
	if s.users == nil {
		s.users = map[string]int{}
	}
	s.users[user]++
	s.total++
	return func() { s.close(user) }, nil
}

func (s *streams) close(user string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	s.users[user]--
	if s.users[user] == 0 {
		delete(s.users, user)
	}
}
