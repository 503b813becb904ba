package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/version"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// oldestServer is the oldest Kubernetes that Daybreak works with.
var oldestServer = version.MajorMinor(1, 23)

// errUnsupported is the error of an API server that is too old.
var errUnsupported = errors.New("upgrade the cluster")

// serverTimeout limits one request to the API server.
const serverTimeout = 10 * time.Second

// Server is what is known of an API server, or of several behind one address:
// their lowest version, and the resources that all of them serve.
type Server struct {
	// Version is the minor version that the server behaves as: that of the server,
	// or an older one that it emulates.
	Version *version.Version
	// Newest is the highest version among several servers.
	Newest *version.Version
	// Served are those of the resources in question that all servers serve.
	Served sets.Set[schema.GroupVersionResource]
}

// AskServer asks the API server for its version, and which of the resources it
// serves. Each time has a connection of its own, which may lead to another of
// several servers behind one address; the answer is what they have in common.
// Some of them may be down.
func AskServer(ctx context.Context, config *rest.Config, times int, resources ...schema.GroupVersionResource) (*Server, error) {
	servers, errs := make([]*Server, times), make([]error, times)
	var group sync.WaitGroup
	for i := range times {
		group.Go(func() { servers[i], errs[i] = askServer(ctx, config, resources) })
	}
	group.Wait()
	var common *Server
	for _, s := range servers {
		common = common.and(s)
	}
	if common == nil {
		return nil, fmt.Errorf("ask the API server for its version: %w", errs[0])
	}
	if common.Version.LessThan(oldestServer) {
		err := fmt.Errorf("the API server is Kubernetes %s, and Daybreak needs %s or later: %w", common.Version, oldestServer, errUnsupported)
		reportOnOwnPod(ctx, config, reasonServerTooOld, err.Error())
		return nil, err
	}
	return common, nil
}

// CheckServer returns an error if the API server is too old. One that does not answer
// is left to the clients.
func CheckServer(ctx context.Context, config *rest.Config) error {
	if _, err := AskServer(ctx, config, 1); errors.Is(err, errUnsupported) {
		return err
	}
	return nil
}

// askServer asks one server.
func askServer(ctx context.Context, config *rest.Config, resources []schema.GroupVersionResource) (*Server, error) {
	client, done, err := newConnection(config)
	if err != nil {
		return nil, err
	}
	defer done()
	s := &Server{Served: sets.New[schema.GroupVersionResource]()}
	info, err := readVersion(ctx, client)
	if err != nil {
		return nil, err
	}
	if s.Version = parseServerVersion(&info); s.Version == nil {
		return nil, fmt.Errorf("it reports none that can be read: %.40q", info.GitVersion)
	}
	s.Newest = s.Version
	if err := s.discover(ctx, client, resources); err != nil {
		return nil, err
	}
	return s, nil
}

// readVersion reads what the server reports of its version.
func readVersion(ctx context.Context, client rest.Interface) (info apiversion.Info, err error) {
	raw, err := client.Get().AbsPath("/version").Do(ctx).Raw()
	if err == nil && json.Unmarshal(raw, &info) != nil {
		err = errors.New("/version of the API server can't be read")
	}
	return info, err
}

// and returns what two servers have in common; either may be unknown.
func (s *Server) and(other *Server) *Server {
	if s == nil || other == nil {
		return cmp.Or(s, other)
	}
	common := &Server{Version: s.Version, Newest: s.Newest, Served: s.Served.Intersection(other.Served)}
	if other.Version.LessThan(s.Version) {
		common.Version = other.Version
	}
	if other.Newest.GreaterThan(s.Newest) {
		common.Newest = other.Newest
	}
	return common
}

// Serves reports whether the server serves the resource, which must be one that
// it was asked for.
func (s *Server) Serves(resource schema.GroupVersionResource) bool { return s.Served.Has(resource) }

// discover notes which of the resources the server serves.
func (s *Server) discover(ctx context.Context, client rest.Interface, resources []schema.GroupVersionResource) error {
	lists := map[schema.GroupVersion]*metav1.APIResourceList{}
	for _, r := range resources {
		gv := r.GroupVersion()
		if lists[gv] == nil {
			lists[gv] = &metav1.APIResourceList{}
			path := "/apis/" + gv.String()
			if gv.Group == "" {
				path = "/api/" + gv.Version
			}
			if err := client.Get().AbsPath(path).Do(ctx).Into(lists[gv]); err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("%s: %w", path, err)
			}
		}
		if slices.ContainsFunc(lists[gv].APIResources, func(a metav1.APIResource) bool { return a.Name == r.Resource }) {
			s.Served.Insert(r)
		}
	}
	return nil
}

// newConnection returns a client with a connection of its own. Those that
// client-go makes share their connections and keep them.
func newConnection(config *rest.Config) (client rest.Interface, done func(), err error) {
	tls, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, nil, err
	}
	proxy := config.Proxy
	if proxy == nil {
		proxy = http.ProxyFromEnvironment
	}
	transport := &http.Transport{TLSClientConfig: tls, Proxy: proxy, DialContext: config.Dial}
	wrapped, err := rest.HTTPWrappersForConfig(config, transport)
	if err != nil {
		return nil, nil, err
	}
	made, err := discovery.NewDiscoveryClientForConfigAndClient(config, &http.Client{Transport: wrapped, Timeout: serverTimeout})
	if err != nil {
		return nil, nil, err
	}
	return made.RESTClient(), transport.CloseIdleConnections, nil
}

// parseServerVersion reads /version, in which vendors add to the numbers: "28+",
// "v1.28.3-aliyun.1". It returns nil when there is no version.
func parseServerVersion(info *apiversion.Info) *version.Version {
	for _, text := range []string{
		// A newer server may itself be set to behave as an older one.
		info.EmulationMajor + "." + info.EmulationMinor, info.Major + "." + info.Minor, info.GitVersion,
	} {
		v, err := version.ParseGeneric(text)
		if err == nil && v.Major() > 0 && v.Minor() > 0 { // an unreleased build reports 0.0
			return version.MajorMinor(v.Major(), v.Minor())
		}
	}
	return nil
}
