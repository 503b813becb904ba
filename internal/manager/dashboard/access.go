package dashboard

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
)

var (
	errNoToken   = errors.New("authentication required: log in, or send a token in the header Authorization: Bearer")
	errBadToken  = errors.New("invalid or expired token")
	errForbidden = errors.New("access denied")
	errBusy      = errors.New("too many unknown tokens from this address: retry in a moment")
)

// user is a user that the API server knows.
type user = authenticationv1.UserInfo

const (
	// reviewed is how long a review is cached: so long a token that was revoked
	// still works.
	reviewed = 30 * time.Second
	// rememberedReviews bounds the caches.
	rememberedReviews = 8192
	// reviewTimeout is how long the API server may take.
	reviewTimeout = 10 * time.Second
	// lately is how long an accepted token is reviewed again outside of all
	// budgets. It is renewed every time.
	lately = 10 * time.Minute
	// parallelReviews is how many reviews of one viewer run at once.
	parallelReviews = 8
)

// reviews asks the API server whose a token is (TokenReview) and what its user may
// see (SubjectAccessReview). Nil is a page that is open to all.
type reviews struct {
	client kubernetes.Interface
	tokens *cache.LRUExpireCache // sha256 of a token: *user, nil for one that is not known
	access *cache.LRUExpireCache // user and question: bool
	// viewers are the sha256 of tokens that were accepted lately. One source gets
	// fewer tokens reviewed in that time than it holds, so that no valid one is
	// evicted.
	viewers *cache.LRUExpireCache
	unknown *tokenBudget
	// inFlight makes many requests with one token one review.
	inFlight singleflight.Group
}

func newReviews(client kubernetes.Interface, clk clock.PassiveClock) *reviews {
	return &reviews{
		client: client, unknown: newTokenBudget(clk), viewers: cache.NewLRUExpireCacheWithClock(rememberedReviews, clk),
		tokens: cache.NewLRUExpireCacheWithClock(rememberedReviews, clk), access: cache.NewLRUExpireCacheWithClock(rememberedReviews, clk),
	}
}

// who returns the user of the request. The token must be valid, and its user must
// be allowed to list nodes and Devices, since the page shows them all. The errors
// are errNoToken, errBadToken, errBusy and errForbidden, or of the API server.
func (g *reviews) who(r *http.Request) (*user, error) {
	if g == nil {
		return &user{}, nil
	}
	token := tokenOf(r)
	if token == "" {
		return nil, errNoToken
	}
	ctx, cancel := context.WithTimeout(r.Context(), reviewTimeout)
	defer cancel()
	u, err := g.authenticate(ctx, token, sourceOf(r.RemoteAddr))
	if err != nil {
		return nil, err
	}
	for _, attributes := range pageRights {
		allowed, err := g.may(ctx, u, attributes)
		if err != nil {
			return nil, err
		}
		if !allowed {
			return nil, fmt.Errorf("%w: user %s may not list %s; the dashboard requires the right to list nodes and devices.%s",
				errForbidden, u.Username, attributes.Resource, v1alpha1.GroupVersion.Group)
		}
	}
	g.viewers.Add(sha256.Sum256([]byte(token)), true, lately)
	return u, nil
}

// pageRights are the rights without which nothing is shown.
var pageRights = []authorizationv1.ResourceAttributes{
	{Verb: "list", Version: "v1", Resource: "nodes"},
	{Verb: "list", Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version, Resource: "devices"},
}

// authenticate returns the user of the token. Concurrent requests with one token
// are one review, and count once in the budget of their source.
func (g *reviews) authenticate(ctx context.Context, token, source string) (*user, error) {
	// The first request may be cancelled: the others wait for the same answer.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reviewTimeout)
	defer cancel()
	key := sha256.Sum256([]byte(token))
	answer, err, _ := g.inFlight.Do(string(key[:])+source, func() (any, error) {
		if known, ok := g.tokens.Get(key); ok {
			return known, nil
		}
		if _, viewer := g.viewers.Get(key); !viewer && !g.unknown.admit(source) {
			return nil, errBusy
		}
		u, err := g.review(ctx, token)
		if err != nil {
			return nil, err
		}
		if u == nil {
			g.viewers.Remove(key)
		}
		g.tokens.Add(key, u, reviewed)
		return u, nil
	})
	if err != nil {
		return nil, err
	}
	if u, ok := answer.(*user); ok && u != nil {
		return u, nil
	}
	return nil, errBadToken
}

// review returns the user of the token; nil if it is not valid.
func (g *reviews) review(ctx context.Context, token string) (*user, error) {
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	review, err := g.client.AuthenticationV1().TokenReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("review the token: %w", err)
	}
	if !review.Status.Authenticated {
		return nil, nil //nolint:nilnil // not valid
	}
	return &review.Status.User, nil
}

// sight returns which of the namespaces the user may see.
func (g *reviews) sight(ctx context.Context, u *user, namespaces []string) (*sight, error) {
	if g == nil {
		return everything, nil
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	pods := func(namespace string) authorizationv1.ResourceAttributes {
		return authorizationv1.ResourceAttributes{Verb: "list", Version: "v1", Resource: "pods", Namespace: namespace}
	}
	all, err := g.may(ctx, u, pods(metav1.NamespaceAll))
	if err != nil || all {
		return everything, err
	}
	allowed := make([]bool, len(namespaces))
	var group errgroup.Group
	group.SetLimit(parallelReviews)
	for i, namespace := range namespaces {
		group.Go(func() error {
			var err error
			allowed[i], err = g.may(ctx, u, pods(namespace))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	s := &sight{namespaces: map[string]bool{}}
	for i, namespace := range namespaces {
		if allowed[i] {
			s.namespaces[namespace] = true
		}
	}
	return s, nil
}

// may reports whether the user has a right.
func (g *reviews) may(ctx context.Context, u *user, attributes authorizationv1.ResourceAttributes) (bool, error) {
	key := fmt.Sprintf("%q %q %q %q %+v", u.Username, u.UID, u.Groups, u.Extra, attributes)
	if known, ok := g.access.Get(key); ok {
		allowed, ok := known.(bool)
		return ok && allowed, nil
	}
	extra := make(map[string]authorizationv1.ExtraValue, len(u.Extra))
	for k, v := range u.Extra {
		extra[k] = authorizationv1.ExtraValue(v)
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: u.Username, UID: u.UID, Groups: u.Groups, Extra: extra, ResourceAttributes: &attributes,
	}}
	review, err := g.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("review what %s may see: %w", u.Username, err)
	}
	g.access.Add(key, review.Status.Allowed, reviewed)
	return review.Status.Allowed, nil
}

// cookie is what a browser keeps of a login: the token, out of reach of
// scripts, until the browser is closed. The prefix makes browsers insist on
// TLS and on this host.
const cookie = "__Host-daybreak-token"

// longestToken is what fits into a cookie.
const longestToken = 3800

// tokenOf returns the token that a request carries: in a header, as programs and
// proxies that log users in send it, or in the cookie of our own login.
func tokenOf(r *http.Request) string {
	if header := r.Header.Get("Authorization"); header != "" {
		scheme, token, _ := strings.Cut(header, " ")
		if strings.EqualFold(scheme, "Bearer") {
			return strings.TrimSpace(token)
		}
		return ""
	}
	if c, err := r.Cookie(cookie); err == nil {
		return c.Value
	}
	return ""
}
