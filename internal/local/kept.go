package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"sigs.k8s.io/yaml"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

const (
	// keptFile, in the cluster's folder, has the [keptNodes] of its last run.
	keptFile = "playground.yaml"
	// nodePrefix begins the names of the nodes.
	nodePrefix = "metax"
)

// keptNodes are the nodes of a cluster that --data keeps.
type keptNodes struct {
	Nodes    int                `json:"nodes"`
	Profile  string             `json:"profile"`
	ServedBy string             `json:"servedBy"`
	Kinds    []discover.Profile `json:"kinds"`
}

// readKept returns the nodes of the folder's cluster, or nil if it is new.
func readKept(dir string) (*keptNodes, error) {
	path := filepath.Join(dir, keptFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	k := &keptNodes{}
	err = yaml.UnmarshalStrict(text, k)
	if err == nil && (k.Nodes < 1 || len(k.Kinds) == 0) {
		err = errors.New("no nodes")
	}
	if err != nil {
		return nil, fmt.Errorf("%s does not describe the nodes of a playground (%w): remove the folder to start over", path, err)
	}
	return k, nil
}

func (k *keptNodes) write(dir string) error {
	text, err := yaml.Marshal(k)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, keptFile), text, 0o600)
}

// keeps reports whether the node of the last run is wanted, and as what it was.
func (k *keptNodes) keeps(node string, last *keptNodes) bool {
	number, err := strconv.Atoi(strings.TrimPrefix(node, nodePrefix+"-"))
	i := number - 1
	return err == nil && i >= 0 && i < min(k.Nodes, last.Nodes) && node == nodeName(nodePrefix, i) && k.ServedBy == last.ServedBy &&
		apiequality.Semantic.DeepEqual(k.Kinds[i%len(k.Kinds)], last.Kinds[i%len(last.Kinds)])
}

// changes returns the flags with which the wanted nodes differ from the kept ones.
func (k *keptNodes) changes(want *keptNodes) string {
	var flags []string
	if k.Nodes != want.Nodes {
		flags = append(flags, fmt.Sprintf("--nodes %d", want.Nodes))
	}
	if k.ServedBy != want.ServedBy {
		flags = append(flags, "--served-by "+want.ServedBy)
	}
	if !apiequality.Semantic.DeepEqual(k.Kinds, want.Kinds) {
		flags = append(flags, "--profile "+want.Profile)
	}
	return strings.Join(flags, " ")
}

// removeStaleNodes removes the nodes of an earlier run that are no longer wanted, or
// wanted as something else, and returns their names. Nodes on which pods run are
// not removed: then none is.
func (c *Cluster) removeStaleNodes(ctx context.Context, kept, want *keptNodes) (removed []string, err error) {
	nodes, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: wire.LabelSimulated + "=true"})
	if err != nil {
		return nil, fmt.Errorf("list the nodes of the last run: %w", err)
	}
	for i := range nodes.Items {
		name := nodes.Items[i].Name
		if !want.keeps(name, kept) {
			removed = append(removed, name)
		}
	}
	busy, err := c.podsOn(ctx, removed)
	if err != nil {
		return nil, err
	}
	if len(busy) > 0 {
		flags := kept.changes(want)
		return nil, fmt.Errorf("%s: pods run on nodes that would be removed or replaced (%s): start without %s, delete them and try again, or name another folder with --data",
			flags, cutList(busy, 3), flags)
	}
	devices, err := dynamic.NewForConfig(c.RESTAs("simulator"))
	if err != nil {
		return nil, err
	}
	for _, name := range removed {
		for _, remove := range []func(context.Context, string, metav1.DeleteOptions) error{
			c.client.CoreV1().Nodes().Delete,
			c.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Delete,
			func(ctx context.Context, name string, o metav1.DeleteOptions) error {
				return devices.Resource(v1alpha1.GroupVersion.WithResource("devices")).Delete(ctx, name, o)
			},
		} {
			if err := remove(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				return nil, fmt.Errorf("remove node %s of the last run: %w", name, err)
			}
		}
		if err := os.Remove(filepath.Join(c.Dir, profilesFolder, name+".yaml")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return removed, nil
}

// podsOn returns the pods that run on the nodes, except those of DaemonSets, which
// go with their nodes.
func (c *Cluster) podsOn(ctx context.Context, nodes []string) ([]string, error) {
	pods, err := c.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the pods of the last run: %w", err)
	}
	var names []string
	for i := range pods.Items {
		pod := &pods.Items[i]
		owner := metav1.GetControllerOf(pod)
		if !slices.Contains(nodes, pod.Spec.NodeName) || podutil.IsPodTerminal(pod) || pod.DeletionTimestamp != nil || owner != nil && owner.Kind == "DaemonSet" {
			continue
		}
		names = append(names, fmt.Sprintf("%s/%s on %s", pod.Namespace, pod.Name, pod.Spec.NodeName))
	}
	return names, nil
}

// cutList writes the first n of a list.
func cutList(list []string, n int) string {
	if len(list) <= n {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:n], ", "), len(list)-n)
}
