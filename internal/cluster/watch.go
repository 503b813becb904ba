package cluster

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/request"
)

const (
	// debounce is how long a Watcher waits after a change for more of them: one
	// redraw shows them all.
	debounce = 300 * time.Millisecond
	// tick is how often a Watcher shows what it has though nothing changed: ages
	// advance.
	tick = time.Second
	// heartbeat is the time between two questions to the API server, and
	// heartbeatTimeout how long an answer may take. A watch of a server that hangs
	// just shows no changes.
	heartbeat        = 2 * time.Second
	heartbeatTimeout = 3 * time.Second
)

// Sight is what a Watcher knows at a moment.
type Sight struct {
	// Objects are the cluster as it was last seen. The pointer is another one when
	// something has changed.
	Objects *Objects
	// Answered is when the API server last showed that Objects are up to date.
	Answered time.Time
	// Lost is when the connection was found to be lost, and Err how; zero while there
	// is one.
	Lost time.Time
	Err  error
}

// Watcher follows a cluster. It keeps what the API server sends and makes
// Objects of it on demand, so that watching costs the server no lists.
type Watcher struct {
	*Client
	plugin inventory.VendorPlugin

	sight Sight
	// session is nil while the connection is lost.
	session *session
}

// NewWatcher prepares to follow the cluster. The plugin decides who serves a node
// without a Device.
func NewWatcher(ctx context.Context, client *Client, plugin inventory.VendorPlugin) (*Watcher, error) {
	w := &Watcher{Client: client, plugin: plugin}
	var err error
	w.session, err = w.open(ctx)
	return w, err
}

// Ping reports as an error that the API server does not answer, or says that it is
// not ready. Whether the user may ask does not matter.
func Ping(ctx context.Context, client rest.Interface) error {
	err := client.Get().AbsPath("/readyz").Do(ctx).Error()
	var status apierrors.APIStatus // which is no error by itself
	if errors.As(err, &status) && status.Status().Code < http.StatusInternalServerError {
		return nil
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return errors.New("it does not answer")
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		return wrapped.Err // without the address
	}
	return err
}

// session is one set of informers. They are given up when the connection is lost:
// they would wait for the answer of a server that hangs, and ever longer before
// they try again.
type session struct {
	informers Informers
	reader    *Reader
	changed   chan struct{}
	failed    chan error
	stop      func()
}

// open prepares informers.
func (w *Watcher) open(ctx context.Context) (*session, error) {
	s := &session{changed: make(chan struct{}, 1), failed: make(chan error, 1)}
	typed, untyped := informers.NewSharedInformerFactory(w.typed, 0), dynamicinformer.NewDynamicSharedInformerFactory(w.untyped, 0)
	var err error
	s.informers, err = Open(ctx, w.untyped, func(resource schema.GroupVersionResource, _ Object) (cache.SharedIndexInformer, error) {
		from, err := typed.ForResource(resource)
		if err != nil { // it has no Go type
			from = untyped.ForResource(resource)
		}
		informer := from.Informer()
		return informer, errors.Join(informer.SetTransform(request.Trim), informer.SetWatchErrorHandlerWithContext(s.failure))
	})
	if err != nil {
		return nil, err
	}
	s.reader = NewReader(s.informers, w.plugin)
	return s, s.reader.OnChange(func() {
		select {
		case s.changed <- struct{}{}:
		default: // one is waiting already
		}
	})
}

// failure notes an error of an informer, but for the usual ends of a watch, after
// which it goes on at once. The informer's own log would spoil the screen.
func (s *session) failure(_ context.Context, _ *cache.Reflector, err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return
	}
	select {
	case s.failed <- err:
	default: // one is waiting already
	}
}

// start runs the informers until end is called.
func (s *session) start(ctx context.Context, client kubernetes.Interface) {
	ctx, cancel := context.WithCancel(klog.NewContext(ctx, klog.Logger{}))
	var running sync.WaitGroup
	for _, informer := range s.informers.all() {
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	running.Go(func() { s.reader.Run(ctx, client) })
	s.stop = func() {
		cancel()
		running.Wait()
	}
}

// end stops the informers, if there are any.
func (s *session) end() {
	if s != nil {
		s.stop()
	}
}

// Run calls show with the cluster as it is, again after changes, and about every
// second, until the context ends. Changes that come together are shown together.
// While the API server can't be reached, show is called with the time of the loss
// and what was seen last.
func (w *Watcher) Run(ctx context.Context, show func(Sight) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		w.session.end()
	}()
	w.session.start(ctx, w.typed)
	beats, due := make(chan beat, 1), time.After(heartbeat)
	redraw := time.After(0)
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	for {
		session := cmp.Or(w.session, &session{})
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-due:
			missing := w.session == nil
			undefined := !missing && session.informers.Devices == nil
			go func() { beats <- w.beat(ctx, missing, undefined) }()
			continue
		case b := <-beats:
			due = time.After(heartbeat)
			if w.take(ctx, &b) {
				redraw = time.After(0)
			}
		case <-session.changed:
			if redraw == nil {
				redraw = time.After(debounce)
			}
			continue
		case err := <-session.failed:
			w.lose(err)
		case <-redraw:
			redraw = nil
			if !w.read() {
				redraw = time.After(debounce)
				continue
			}
		case <-ticks.C:
		}
		if w.sight.Objects == nil {
			continue
		}
		if err := show(w.sight); err != nil {
			return err
		}
	}
}

// beat is the answer to a question to the API server: an error where there was
// none, and new informers where they were wanted.
type beat struct {
	err     error
	session *session
}

// beat asks the API server whether it is there, and prepares new informers if they
// are missing, or if Devices are defined now that were not.
func (w *Watcher) beat(ctx context.Context, missing, undefined bool) (b beat) {
	ctx, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	if b.err = w.ping(ctx); b.err != nil {
		return b
	}
	if undefined { // any other answer than a list is one for the next heartbeat
		missing = probe(ctx, w.untyped, devices) == nil
	}
	if missing {
		b.session, b.err = w.open(ctx)
	}
	return b
}

// take takes note of what a heartbeat brought, and reports whether there are new
// informers.
func (w *Watcher) take(ctx context.Context, b *beat) (fresh bool) {
	switch {
	case b.err != nil:
		w.lose(b.err)
	case b.session != nil:
		w.session.end()
		w.session = b.session
		w.session.start(ctx, w.typed)
		return true
	case w.sight.Lost.IsZero():
		w.sight.Answered = time.Now()
	}
	return false
}

// read makes Objects of what the API server has sent. It reports false while the
// informers are being filled.
func (w *Watcher) read() bool {
	if w.session == nil {
		return true // until there are others
	}
	objects, err := w.session.reader.Objects()
	if err != nil {
		return false
	}
	w.sight = Sight{Objects: objects, Answered: time.Now()}
	return true
}

// lose notes that the connection is lost, and gives up the informers.
func (w *Watcher) lose(err error) {
	if w.sight.Lost.IsZero() {
		w.sight.Lost, w.sight.Err = time.Now(), err
	}
	w.session.end()
	w.session = nil
}
