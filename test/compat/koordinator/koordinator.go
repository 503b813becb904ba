// Package koordinator runs Koordinator's real scheduler on a local cluster, with the
// definitions, rights and configuration of its release. All of it comes from the Go
// module proxy: `make bin/compat/koordinator/koord-scheduler` builds the binary and
// copies the release's folder config next to it.
package koordinator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// The names that a release installs its parts under.
const (
	Namespace     = "koordinator-system"
	SchedulerName = "koord-scheduler"
	SchedulerUser = "system:serviceaccount:" + Namespace + ":" + SchedulerName
	KoordletUser  = "system:serviceaccount:" + Namespace + ":koordlet"
)

// MetaX is the feature gate with which koord-scheduler writes what the vendor's
// plugin reads: the cards of a pod and the node's lock.
const MetaX = "--feature-gates=DevicePluginAdaption=true"

// Release is the folder with koord-scheduler and the release's folder config.
type Release string

// Scheduler is how a koord-scheduler differs from the release's configuration.
type Scheduler struct {
	// Profile is the schedulerName of the pods that it places; empty for the
	// release's own.
	Profile string
	// QPS and Burst limit its requests; zero for the release's own.
	QPS, Burst int
}

// Install puts the definitions and the rights of the release into the cluster.
func (r Release) Install(ctx context.Context, c *local.Cluster) error {
	definitions, err := filepath.Glob(filepath.Join(string(r), "config", "crd", "bases", "*.yaml"))
	if err != nil || len(definitions) == 0 {
		return errors.Join(err, fmt.Errorf("%s has no definitions: run make bin/compat/koordinator/koord-scheduler", r))
	}
	for _, file := range definitions {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := c.Apply(ctx, bytes.NewReader(text)); err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(file), err)
		}
	}
	rights := bytes.NewBufferString("{apiVersion: v1, kind: Namespace, metadata: {name: " + Namespace + "}}\n")
	for _, name := range []string{"scheduler_role", "scheduler_role_binding", "koordlet"} {
		text, err := os.ReadFile(filepath.Join(string(r), "config", "rbac", name+".yaml"))
		if err != nil {
			return err
		}
		fmt.Fprintf(rights, "---\n%s", text)
	}
	// As the release's kustomization names them.
	named := strings.NewReplacer("namespace: system", "namespace: "+Namespace, "name: scheduler", "name: "+SchedulerName).Replace(rights.String())
	if err := c.Apply(ctx, strings.NewReader(named)); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(c.REST())
	if err != nil {
		return err
	}
	token, err := client.CoreV1().ServiceAccounts(Namespace).CreateToken(ctx, SchedulerName, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return c.WriteKubeconfig(SchedulerName, &clientcmdapi.AuthInfo{Token: token.Status.Token})
}

// NewScheduler returns a koord-scheduler of the cluster, not started yet.
func (r Release) NewScheduler(c *local.Cluster, name string, s Scheduler, args ...string) (*local.Process, error) {
	text, err := os.ReadFile(filepath.Join(string(r), "config", "manager", "scheduler-config.yaml"))
	if err != nil {
		return nil, err
	}
	var shipped corev1.ConfigMap
	if err := yaml.Unmarshal(text, &shipped); err != nil {
		return nil, err
	}
	var config map[string]any
	if err := yaml.Unmarshal([]byte(shipped.Data["koord-scheduler-config"]), &config); err != nil {
		return nil, err
	}
	connection := map[string]any{"kubeconfig": c.Kubeconfig(SchedulerName)}
	if s.QPS > 0 {
		connection["qps"], connection["burst"] = s.QPS, s.Burst
	}
	config["clientConnection"] = connection
	config["leaderElection"] = map[string]any{"leaderElect": false} // there is one
	profiles, ok := config["profiles"].([]any)
	if !ok || len(profiles) != 1 {
		return nil, fmt.Errorf("the release's configuration has the profiles %v, want one", config["profiles"])
	}
	if profile, ok := profiles[0].(map[string]any); ok && s.Profile != "" {
		profile["schedulerName"] = s.Profile
	}
	if text, err = yaml.Marshal(config); err != nil {
		return nil, err
	}
	file := filepath.Join(c.Dir, name+".yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, err
	}
	all := []string{"--config=" + file, "--port=0", "--secure-port=0", "--authentication-skip-lookup=true", "-v=2"}
	return c.NewProcess(name, filepath.Join(string(r), SchedulerName), append(all, args...)...), nil
}

// Device returns the Device that koordlet 1.8.0 writes for a node with MetaX cards:
// with an owner and two labels, ordered by the cards' ids, and without links.
func Device(node *corev1.Node, t *gpu.Topology) *v1alpha1.Device {
	d := &v1alpha1.Device{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Device"},
		ObjectMeta: metav1.ObjectMeta{
			Name:            node.Name,
			Labels:          map[string]string{wire.LabelVendor: wire.VendorMetaX, wire.LabelModel: t.Card(0).Model},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(node, corev1.SchemeGroupVersion.WithKind("Node"))},
		},
	}
	for i := range t.Len() {
		c := t.Card(i)
		d.Spec.Devices = append(d.Spec.Devices, v1alpha1.DeviceInfo{
			Type: v1alpha1.DeviceTypeGPU, UUID: string(c.ID), Minor: new(int32(i)), Health: c.Healthy,
			Resources: corev1.ResourceList{
				wire.KoordCore: resource.MustParse("100"), wire.KoordMemoryRatio: resource.MustParse("100"),
				wire.KoordMemory: resource.MustParse(fmt.Sprintf("%dGi", c.Memory>>10)),
			},
			Topology: &v1alpha1.DeviceTopology{SocketID: -1, NodeID: int32(c.NUMA), PCIEID: "pci0000:3a", BusID: fmt.Sprintf("0000:%02x:00.0", 0x38+i)},
			Conditions: []metav1.Condition{{
				Type: "Healthy", Status: metav1.ConditionTrue, LastTransitionTime: metav1.Now(), Reason: "DeviceHealthy", Message: "device is healthy",
			}},
		})
	}
	slices.SortFunc(d.Spec.Devices, func(a, b v1alpha1.DeviceInfo) int { return strings.Compare(a.UUID, b.UUID) })
	return d
}
