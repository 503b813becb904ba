package deviceplugin

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	kubelettypes "k8s.io/kubelet/pkg/types"
)

// Timing of the questions to the container runtime.
const (
	runtimeTimeout = 5 * time.Second
	// runtimeInterval is how often the runtime is asked without a new connection.
	runtimeInterval = 15 * time.Second
	// runtimeRetry is used while it does not answer; a restart may take
	// runtimeRestart before it is reported.
	runtimeRetry   = time.Second
	runtimeRestart = 5 * time.Second
)

// knownSockets are those of containerd, of k3s and RKE2, and of CRI-O.
var knownSockets = []string{"/run/containerd/containerd.sock", "/run/k3s/containerd/containerd.sock", "/run/crio/crio.sock"}

// containers is the container runtime: it knows which containers live, also of pods
// that were deleted by force, and whether it injects CDI devices.
type containers struct {
	client cri.RuntimeServiceClient
	// changes counts connections: another one may be of another process.
	changes atomic.Int64
	changed chan struct{}
	last    atomic.Pointer[RuntimeAnswer]
}

// dialRuntime connects to the container runtime, lazily.
func dialRuntime(cfg *Config) (*grpc.ClientConn, *containers, error) {
	c := &containers{changed: make(chan struct{}, 1)}
	conn, err := grpc.NewClient(EndpointScheme+cfg.runtimeSocket(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)), grpc.WithStatsHandler(c),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, MaxDelay: 2 * time.Second}, MinConnectTimeout: runtimeTimeout}))
	if err != nil {
		return nil, nil, fmt.Errorf("container runtime: %w", err)
	}
	c.client = cri.NewRuntimeServiceClient(conn)
	return conn, c, nil
}

// HandleConn implements [stats.Handler]: when a connection begins or ends, the runtime
// may not be the process that answered last.
func (c *containers) HandleConn(context.Context, stats.ConnStats) {
	c.changes.Add(1)
	notify(c.changed)
}

// TagConn, TagRPC and HandleRPC are the rest of [stats.Handler].
func (*containers) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (*containers) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (*containers) HandleRPC(context.Context, stats.RPCStats)                         {}

// alive reports whether a container of the pod may run, now or in a moment.
func (c *containers) alive(ctx context.Context, uid types.UID) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, runtimeTimeout)
	defer cancel()
	list, err := c.list(ctx, uid)
	if err != nil {
		return true, err
	}
	return slices.ContainsFunc(list, func(c *cri.Container) bool {
		return c.GetState() != cri.ContainerState_CONTAINER_EXITED
	}), nil
}

func (c *containers) list(ctx context.Context, uid types.UID) ([]*cri.Container, error) {
	answer, err := c.client.ListContainers(ctx, &cri.ListContainersRequest{
		Filter: &cri.ContainerFilter{LabelSelector: map[string]string{kubelettypes.KubernetesPodUIDLabel: string(uid)}},
	})
	if err != nil {
		return nil, fmt.Errorf("ask the container runtime for containers of pod %s: %w", uid, err)
	}
	return answer.GetContainers(), nil
}

// succeeded reports whether the last container with the name in the pod has ended with 0.
func (c *containers) succeeded(ctx context.Context, uid types.UID, name string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, runtimeTimeout)
	defer cancel()
	list, err := c.list(ctx, uid)
	if err != nil {
		return false, err
	}
	list = slices.DeleteFunc(list, func(c *cri.Container) bool { return c.GetLabels()[kubelettypes.KubernetesContainerNameLabel] != name })
	if len(list) == 0 {
		return false, nil
	}
	last := slices.MaxFunc(list, func(a, b *cri.Container) int { return cmp.Compare(a.GetCreatedAt(), b.GetCreatedAt()) })
	switch last.GetState() {
	case cri.ContainerState_CONTAINER_CREATED:
		return false, nil // it could not be started
	case cri.ContainerState_CONTAINER_EXITED:
	default:
		return false, fmt.Errorf("container %s runs, so it is not known which one starts", name)
	}
	answer, err := c.client.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: last.GetId()})
	if err != nil {
		return false, fmt.Errorf("ask the container runtime how container %s of pod %s ended: %w", name, uid, err)
	}
	return answer.GetStatus().GetExitCode() == 0, nil
}

// ask asks the runtime for its version and configuration; both are of one process.
func (c *containers) ask(ctx context.Context) (*RuntimeAnswer, error) {
	const most = 4
	ctx, cancel := context.WithTimeout(ctx, runtimeTimeout)
	defer cancel()
	for range most {
		before := c.changes.Load()
		version, err := c.client.Version(ctx, &cri.VersionRequest{})
		if err != nil {
			return nil, err
		}
		status, err := c.client.Status(ctx, &cri.StatusRequest{Verbose: true})
		if err != nil {
			return nil, err
		}
		if c.changes.Load() != before {
			continue // it restarted in between, or this was the first question
		}
		a := &RuntimeAnswer{Name: version.GetRuntimeName(), Version: version.GetRuntimeVersion(), Info: status.GetInfo(), changes: before}
		c.last.Store(a)
		return a, nil
	}
	return nil, fmt.Errorf("its connection was lost %d times in a row", most)
}

// current returns the answer of the process that is connected now.
func (c *containers) current(ctx context.Context) (*RuntimeAnswer, error) {
	if last := c.last.Load(); last != nil && last.changes == c.changes.Load() {
		return last, nil
	}
	return c.ask(ctx)
}

// runtimeFault returns why containers with cards can't be left to the runtime.
func (s *Server) runtimeFault(a *RuntimeAnswer, err error) RuntimeFault {
	if err != nil {
		return s.cfg.unreachable(err)
	}
	return a.Fault(s.cfg.CDI, s.cfg.AssumeCDI)
}

// unreachable describes a runtime that does not answer, and names other sockets.
// containerd that Docker uses, and containerd before 1.6, do not serve this API.
func (c *Config) unreachable(err error) RuntimeFault {
	if status.Code(err) == codes.Unimplemented {
		return RuntimeFault{Reason: ReasonNoCDI, Message: fmt.Sprintf(
			"the container runtime at %s does not serve CRI v1, because it is too old, its CRI plugin is off, or kubelet uses Docker (%s): %s",
			c.Runtime, plain(err), otherRuntimes)}
	}
	text := fmt.Sprintf("the container runtime does not answer at %s: %s", c.Runtime, plain(err))
	if found := c.otherSockets(); len(found) > 0 {
		text += fmt.Sprintf("; a socket was found at %s: if it is the runtime of kubelet, set agent.runtimeSocket (--runtime-endpoint) to it", strings.Join(found, " and "))
	} else {
		text += "; set agent.runtimeSocket (--runtime-endpoint) to the endpoint that kubelet uses"
	}
	return RuntimeFault{Reason: ReasonRuntimeUnreachable, Message: text}
}

// plain returns an error of gRPC without the words of gRPC around it.
func plain(err error) string {
	text := status.Convert(err).Message()
	if _, cause, ok := strings.Cut(text, "Error while dialing: "); ok {
		return strings.TrimSuffix(cause, `"`)
	}
	return text
}

func (c *Config) otherSockets() []string {
	var found []string
	for _, path := range knownSockets {
		if EndpointScheme+path == c.Runtime {
			continue
		}
		if info, err := os.Stat(filepath.Join(string(filepath.Separator), c.RuntimeRoot, path)); err == nil && info.Mode().Type() == fs.ModeSocket {
			found = append(found, path)
		}
	}
	return found
}

// injects returns why the runtime can't start a container with CDI devices.
func (s *Server) injects(ctx context.Context) error {
	fault := s.runtimeFault(s.runtime.current(ctx))
	if fault.Reason == "" {
		return nil
	}
	err := fmt.Errorf("no container with cards is started: %s", fault.Message)
	if fault.Reason != ReasonRuntimeUnreachable {
		return errFinal{err} // it takes an administrator
	}
	return err
}

// runtimeLoop asks the runtime at the start, regularly, and when it has restarted. A
// quick restart is not reported.
func (s *Server) runtimeLoop(ctx context.Context) {
	var answered time.Time
	for ctx.Err() == nil {
		fault := s.runtimeFault(s.runtime.ask(ctx))
		wait := runtimeInterval
		switch {
		case fault.Reason != ReasonRuntimeUnreachable:
			answered = s.clock.Now()
			s.setRuntime(ctx, fault)
		case s.clock.Since(answered) >= runtimeRestart:
			s.setRuntime(ctx, fault)
			fallthrough
		default:
			wait = runtimeRetry
		}
		select {
		case <-ctx.Done():
		case <-s.runtime.changed:
		case <-s.clock.After(wait):
		}
	}
}

// setRuntime notes whether the runtime can be left containers with cards.
func (s *Server) setRuntime(ctx context.Context, now RuntimeFault) {
	if was := s.Status(); !was.RuntimeKnown || was.Runtime != now {
		klog.FromContext(ctx).Info("Container runtime checked", "endpoint", s.cfg.Runtime, "reason", now.Reason, "message", now.Message)
	}
	s.setStatus(func(st *Status) {
		st.Runtime, st.RuntimeKnown = now, true
		if now.Reason != "" {
			st.Serving, st.Waits = false, now.Message
		}
	})
	notify(s.wake)
}
