package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

const (
	// recheck is how often the user of a stream and the user's rights are reviewed
	// again. It is no longer than reviews are cached.
	recheck = reviewed
	// writeTimeout is when a stream to a browser that does not read is closed.
	writeTimeout = 30 * time.Second
)

// stream sends the state as server-sent events: first all of it, then what
// changes, for as long as the browser stays.
func (s *server) stream(w http.ResponseWriter, r *http.Request) {
	u, err := s.reviews.who(r)
	if err != nil {
		s.fail(w, err)
		return
	}
	most := userStreams
	if s.reviews == nil { // users have no names
		most = mostStreams
	}
	closed, err := s.streams.open(u.Username, most)
	if err != nil {
		s.fail(w, err)
		return
	}
	defer closed()
	v, err := s.view(r)
	if err != nil {
		s.fail(w, err)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // or some proxies collect it
	out, done := compressed(w, r)
	defer done()
	st := &events{out: out, control: http.NewResponseController(w)}
	beats, stop := s.pulse.open()
	defer stop()
	var last *userView
	for {
		if err := st.send(last, v); err != nil {
			return
		}
		last = v
		if err := s.await(r.Context(), st, beats, v.world.revision); err != nil {
			return
		}
		if v, err = s.view(r); err != nil {
			return // the browser reconnects, and gets the reason if it may not
		}
	}
}

// await returns when something changed, or when the user is to be reviewed again.
// Meanwhile it sends beats.
func (s *server) await(ctx context.Context, st *events, beats <-chan Beat, revision uint64) error {
	soon, cancel := context.WithTimeout(ctx, recheck)
	defer cancel()
	news := make(chan error, 1)
	go func() { news <- s.feed.after(soon, revision) }()
	for {
		select {
		case err := <-news:
			if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
				return nil
			}
			return err
		case beat := <-beats:
			if err := st.event("beat", beat); err != nil {
				return err
			}
		}
	}
}

// events writes server-sent events.
type events struct {
	out     io.Writer
	control *http.ResponseController
}

// send sends what has changed between two views: in the cluster, or in what the
// viewer may see of it.
func (e *events) send(last, now *userView) error {
	var earlier *projection
	if last != nil {
		earlier = last.projection
	}
	st := now.projection.since(earlier)
	if last == nil || *last.Viewer != *now.Viewer {
		st.Viewer = now.Viewer
	} else if st.empty() {
		return nil
	}
	return e.event("state", st)
}

// event sends one event.
func (e *events) event(name string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	// Not every writer supports deadlines, which is no reason to stop.
	_ = e.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	defer func() { _ = e.control.SetWriteDeadline(time.Time{}) }()
	if _, err := fmt.Fprintf(e.out, "event: %s\ndata: %s\n\n", name, data); err != nil {
		return err
	}
	if f, ok := e.out.(interface{ Flush() error }); ok { // the compressor's own
		if err := f.Flush(); err != nil {
			return err
		}
	}
	return e.control.Flush()
}
