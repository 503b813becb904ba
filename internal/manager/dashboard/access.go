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
	errNoToken   = errors.New("who are you? Log in with a token of the cluster, or send it in the header Authorization: Bearer")
	errBadToken  = errors.New("the cluster does not know this token: it may have ended, or belong to another cluster")
	errForbidden = errors.New("not allowed")
	errBusy      = errors.New("too many unknown tokens come from your address: try again in a moment")
)

// guard decides who sees what.
type guard interface {
	// who returns the user that a request comes from. The errors are errNoToken,
	// errBadToken and errForbidden, or what went wrong.
	who(r *http.Request) (*user, error)
	// sight returns how much the user may see of the namespaces.
	sight(ctx context.Context, u *user, namespaces []string) (*sight, error)
}

// user is somebody the API server knows; nil is anybody.
type user = authenticationv1.UserInfo

// open lets everybody see everything.
type open struct{}

func (open) who(*http.Request) (*user, error) { return &user{}, nil }

func (open) sight(context.Context, *user, []string) (*sight, error) { return everything, nil }

const (
	// reviewed is how long the API server's word is taken: so long a token that
	// was withdrawn still works.
	reviewed = 30 * time.Second
	// rememberedReviews bounds what is kept of it.
	rememberedReviews = 8192
	// reviewTimeout is how long the API server may take.
	reviewTimeout = 10 * time.Second
	// lately is how long a token that its user was let in with is asked about
	// again whatever others do. It is renewed every time.
	lately = 10 * time.Minute
	// parallelReviews of one viewer are asked at once.
	parallelReviews = 8
)

// reviews asks the API server: TokenReview says who a token belongs to, and
// SubjectAccessReview what he may see.
type reviews struct {
	client kubernetes.Interface
	tokens *cache.LRUExpireCache // sha256 of a token: *user, nil for one that is not known
	access *cache.LRUExpireCache // user and question: bool
	// viewers are the sha256 of tokens whose users were let in lately. One source
	// gets fewer tokens looked at in that time than it keeps, so that no valid one is
	// pushed out.
	viewers   *cache.LRUExpireCache
	strangers *strangers
	// asking makes many requests with one token one review.
	asking singleflight.Group
}

func newReviews(client kubernetes.Interface, clk clock.PassiveClock) *reviews {
	return &reviews{
		client: client, strangers: newStrangers(clk), viewers: cache.NewLRUExpireCacheWithClock(rememberedReviews, clk),
		tokens: cache.NewLRUExpireCacheWithClock(rememberedReviews, clk), access: cache.NewLRUExpireCacheWithClock(rememberedReviews, clk),
	}
}

// who implements [guard]: the token must be good, and its user may list nodes
// and Devices, since that is what the page shows of every node.
func (g *reviews) who(r *http.Request) (*user, error) {
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
	for _, attributes := range pageRights() {
		allowed, err := g.may(ctx, u, attributes)
		if err != nil {
			return nil, err
		}
		if !allowed {
			return nil, fmt.Errorf("%w: user %s may not list %s; whoever looks at the page needs the right to list nodes and devices.%s, and pods in the namespaces whose pods he is to see",
				errForbidden, u.Username, attributes.Resource, v1alpha1.GroupVersion.Group)
		}
	}
	g.viewers.Add(sha256.Sum256([]byte(token)), true, lately)
	return u, nil
}

// pageRights are the rights without which nothing is shown.
func pageRights() []authorizationv1.ResourceAttributes {
	return []authorizationv1.ResourceAttributes{
		{Verb: "list", Version: "v1", Resource: "nodes"},
		{Verb: "list", Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version, Resource: "devices"},
	}
}

// authenticate returns whose token it is. Requests with one token at once are one
// review, and count once in the budget of their source.
func (g *reviews) authenticate(ctx context.Context, token, source string) (*user, error) {
	// The first request may be cancelled: the others wait for the same answer.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reviewTimeout)
	defer cancel()
	key := sha256.Sum256([]byte(token))
	answer, err, _ := g.asking.Do(string(key[:])+source, func() (any, error) {
		if known, ok := g.tokens.Get(key); ok {
			return known, nil
		}
		if _, viewer := g.viewers.Get(key); !viewer && !g.strangers.admit(source) {
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

// review asks the API server whose token it is; nil if it is not valid.
func (g *reviews) review(ctx context.Context, token string) (*user, error) {
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	review, err := g.client.AuthenticationV1().TokenReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("ask the API server whose token it is: %w", err)
	}
	if !review.Status.Authenticated {
		return nil, nil //nolint:nilnil // not valid
	}
	return &review.Status.User, nil
}

// sight implements [guard].
func (g *reviews) sight(ctx context.Context, u *user, namespaces []string) (*sight, error) {
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

// may asks whether the user has a right.
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
		return false, fmt.Errorf("ask the API server what %s may see: %w", u.Username, err)
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
