package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
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

// firstServed are resources of stable APIs by the version that first serves them,
// the newest first: the version of a server that reports none.
var firstServed = []struct {
	minor    uint
	resource schema.GroupVersionResource
}{
	{36, schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingadmissionpolicies"}},
	{34, schema.GroupVersionResource{Group: "storage.k8s.io", Version: "v1", Resource: "volumeattributesclasses"}},
	{33, schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "servicecidrs"}},
	{30, schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies"}},
	{29, schema.GroupVersionResource{Group: "flowcontrol.apiserver.k8s.io", Version: "v1", Resource: "flowschemas"}},
	{28, schema.GroupVersionResource{Group: "authentication.k8s.io", Version: "v1", Resource: "selfsubjectreviews"}},
	{24, schema.GroupVersionResource{Group: "storage.k8s.io", Version: "v1", Resource: "csistoragecapacities"}},
	{23, schema.GroupVersionResource{Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"}},
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
	if s.Version, err = askVersion(ctx, client); err != nil {
		return nil, err
	}
	if s.Version == nil {
		for _, first := range firstServed {
			resources = append(slices.Clip(resources), first.resource)
		}
	}
	if err := s.discover(ctx, client, resources); err != nil {
		return nil, err
	}
	for _, first := range firstServed {
		if s.Version == nil && s.Serves(first.resource) {
			s.Version = version.MajorMinor(1, first.minor)
		}
	}
	if s.Version == nil {
		return nil, fmt.Errorf("it reports none and has no API of Kubernetes %s or later: %w to %s or later", oldestServer, errUnsupported, oldestServer)
	}
	s.Newest = s.Version
	return s, nil
}

// askVersion returns the version that the server reports, or nil if it reports
// none that can be read.
func askVersion(ctx context.Context, client rest.Interface) (*version.Version, error) {
	raw, err := client.Get().AbsPath("/version").Do(ctx).Raw()
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var info apiversion.Info
	if err := json.Unmarshal(raw, &info); err != nil {
		return nil, nil //nolint:nilerr // its APIs show the version
	}
	return parseServerVersion(&info), nil
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
	git, _, _ := strings.Cut(strings.TrimPrefix(info.GitVersion, "v"), "-")
	gitMajor, rest, _ := strings.Cut(git, ".")
	gitMinor, _, _ := strings.Cut(rest, ".")
	for _, v := range [][2]string{
		// A newer server may itself be set to behave as an older one.
		{info.EmulationMajor, info.EmulationMinor}, {info.Major, info.Minor}, {gitMajor, gitMinor},
	} {
		major, minor := leadingNumber(v[0]), leadingNumber(v[1])
		if major > 0 && minor > 0 { // an unreleased build reports 0.0
			return version.MajorMinor(major, minor)
		}
	}
	return nil
}

// leadingNumber returns the number that the text begins with, or 0.
func leadingNumber(text string) uint {
	digits := text[:len(text)-len(strings.TrimLeft(text, "0123456789"))]
	n, err := strconv.ParseUint(digits, 10, 16)
	if err != nil {
		return 0
	}
	return uint(n)
}
