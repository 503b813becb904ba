package e2e

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"text/template"

	"github.com/daybreak-gpu/daybreak/internal/local"
)

const (
	// nodeName is the name of the one node, nodeAddress where the API server
	// finds its kubelet: kubelet refuses 127.0.0.1.
	nodeName    = "metax-1"
	nodeAddress = "10.98.0.1"
	// containerdSocket is containerd's usual one; /run is our own.
	containerdSocket = "/run/containerd/containerd.sock"
)

// Images that are there without a registry. Each is a static busybox.
const (
	imageUbuntu = "docker.io/library/ubuntu:22.04"
	// imageVendor is the image of the first pod in HAMi's documentation.
	imageVendor = "cr.metax-tech.com/public-ai-release/c500/colossalai:2.24.0.5-py38-ubuntu20.04-amd64"
	imagePause  = "daybreak.test/pause:1"
)

// realNode is a kubelet with its containerd.
type realNode struct {
	containerd, kubelet *local.Process
}

// older reports whether the cluster is of an older version of Kubernetes.
func older() bool { return os.Getenv(envServers) != "" }

// containerdBin returns the path of a binary of containerd.
func containerdBin(name string) string {
	return filepath.Join(cmp.Or(os.Getenv(envContainerd), os.Getenv(envBin)), name)
}

const containerdConfig = `version = 3
root = '{{.Dir}}/containerd'
state = '/run/containerd'
[grpc]
  address = '{{.Socket}}'
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = '{{.Pause}}'
[plugins.'io.containerd.cri.v1.runtime']
  # Lowering it takes a right that containers on CI don't have.
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ['/usr/lib/cni', '/opt/cni/bin']
    conf_dir = '{{.Dir}}/cni'
[plugins.'io.containerd.nri.v1.nri']
  disable = true
`

// cdiLines are what the agent prints for containerd 1.7, which has CDI off by default.
const cdiLines = `
  enable_cdi = true
  cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]`

const olderContainerdConfig = `version = 2
root = '{{.Dir}}/containerd'
state = '/run/containerd'
[grpc]
  address = '{{.Socket}}'
[plugins."io.containerd.grpc.v1.cri"]` + cdiLines + `
  sandbox_image = '{{.Pause}}'
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = '/usr/lib/cni'
    conf_dir = '{{.Dir}}/cni'
[plugins."io.containerd.nri.v1.nri"]
  disable = true
`

const networkConfig = `{
  "cniVersion": "1.0.0", "name": "e2e",
  "plugins": [{
    "type": "bridge", "bridge": "e2e0", "isDefaultGateway": true,
    "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.97.0.0/16"}]]}
  }]
}
`

const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: {{.Address}}
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: false}
  x509: {clientCAFile: {{.CA}}}
authorization: {mode: AlwaysAllow}
tlsCertFile: {{.Cert}}
tlsPrivateKeyFile: {{.Key}}
containerRuntimeEndpoint: unix://{{.Socket}}
# Also on machines with cgroup v1, and without the right to make groups for pods.
{{if not .Older}}failCgroupV1: false
podLogsDir: {{.Dir}}/pods
{{end -}}
cgroupDriver: cgroupfs
cgroupsPerQOS: false
cgroupRoot: /{{.Cgroup}}
enforceNodeAllocatable: []
failSwapOn: false
localStorageCapacityIsolation: false
# The disk and the memory are those of the machine that runs the tests.
evictionHard: {memory.available: 0%, nodefs.available: 0%, nodefs.inodesFree: 0%, imagefs.available: 0%, imagefs.inodesFree: 0%}
imageGCHighThresholdPercent: 100
makeIPTablesUtilChains: false
maxPods: 250
volumePluginDir: {{.Dir}}/volume-plugins
resolvConf: {{.Dir}}/resolv.conf
clusterDNS: [10.0.0.10]
clusterDomain: cluster.local
nodeStatusUpdateFrequency: 2s
syncFrequency: 10s
kubeAPIQPS: 200
kubeAPIBurst: 400
eventRecordQPS: 0
`

// pki returns the path of a certificate or key of the cluster.
func pki(cfg *local.Config, file string) string { return filepath.Join(cfg.Dir, "pki", file) }

// letKubeletsJoin makes the API server confine each kubelet to its own node, and call it.
func letKubeletsJoin(cfg *local.Config) {
	cfg.APIServerArgs = append(cfg.APIServerArgs, "--authorization-mode=Node", "--enable-admission-plugins=NodeRestriction",
		"--kubelet-preferred-address-types=InternalIP",
		"--kubelet-client-certificate="+pki(cfg, "admin.crt"), "--kubelet-client-key="+pki(cfg, "admin.key"))
}

// newNode prepares kubelet and containerd for the cluster.
func newNode(dir string, cluster *local.Cluster) (*realNode, error) {
	const user = "kubelet-" + nodeName
	if err := cluster.AddUser(user, "system:node:"+nodeName, "system:nodes"); err != nil {
		return nil, err
	}
	values := struct {
		// CA verifies the clients that call kubelet; Cert and Key are what it serves with.
		CA, Cert, Key                       string
		Dir, Socket, Pause, Address, Cgroup string
		Older                               bool
	}{
		pki(&cluster.Config, "ca.crt"), pki(&cluster.Config, user+".crt"), pki(&cluster.Config, user+".key"),
		dir, containerdSocket, imagePause, nodeAddress, cgroup(), older(),
	}
	config, kubelet := containerdConfig, bin("kubelet")
	args := []string{filepath.Join(dir, "kubelet.yaml"), cluster.Kubeconfig(user), "/var/lib/kubelet", nodeName, nodeAddress}
	if older() {
		config, kubelet = olderContainerdConfig, filepath.Join(os.Getenv(envServers), "kubelet")
		for i, flag := range []string{"config", "kubeconfig", "root-dir", "hostname-override", "node-ip"} {
			args[i] = "--" + flag + "=" + args[i]
		}
	}
	for name, text := range map[string]string{
		"containerd.toml": config, "kubelet.yaml": kubeletConfig, "cni/10-e2e.conflist": networkConfig, "resolv.conf": "",
	} {
		var filled bytes.Buffer
		if err := template.Must(template.New(name).Parse(text)).Execute(&filled, values); err != nil {
			return nil, err
		}
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(path, filled.Bytes(), 0o600); err != nil {
			return nil, err
		}
	}
	n := &realNode{
		containerd: cluster.NewProcess("containerd", containerdBin("containerd"), "--config", filepath.Join(dir, "containerd.toml")),
		kubelet:    cluster.NewProcess("kubelet", kubelet, args...),
	}
	// The shim is found beside containerd.
	n.containerd.Env = []string{"PATH=" + filepath.Dir(containerdBin("containerd")) + ":" + os.Getenv("PATH")}
	return n, nil
}

// importImages gives containerd the images that pods name.
func importImages(ctx context.Context, dir string) error {
	archive := filepath.Join(dir, "images.tar")
	if err := writeImages(archive); err != nil {
		return err
	}
	return ctr(ctx, "images", "import", archive)
}

// ctr runs containerd's own client on kubelet's containers.
func ctr(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, containerdBin("ctr"), append([]string{"--address", containerdSocket, "--namespace", "k8s.io"}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ctr %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// applets are the commands that the images have.
var applets = []string{"cat", "env", "false", "ls", "sh", "sleep", "stat", "true"}

// writeImages writes an archive of images as Docker saves them.
func writeImages(path string) error {
	layer, err := busyboxLayer()
	if err != nil {
		return err
	}
	sum := sha256.Sum256(layer)
	type manifest struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	var manifests []manifest
	files := map[string][]byte{"layer.tar": layer}
	for name, entrypoint := range map[string][]string{"apps": nil, "pause": {"/bin/sleep", "infinity"}} {
		config, err := json.Marshal(map[string]any{
			"architecture": runtime.GOARCH, "os": "linux",
			"config": map[string]any{"Env": []string{"PATH=/bin"}, "Entrypoint": entrypoint, "Cmd": []string{}},
			"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(sum[:])}},
		})
		if err != nil {
			return err
		}
		files[name+".json"] = config
		tags := []string{imageUbuntu, imageVendor}
		if name == "pause" {
			tags = []string{imagePause}
		}
		manifests = append(manifests, manifest{Config: name + ".json", RepoTags: tags, Layers: []string{"layer.tar"}})
	}
	if files["manifest.json"], err = json.Marshal(manifests); err != nil {
		return err
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for name, text := range files {
		if err := addFile(w, &tar.Header{Name: name, Mode: 0o644}, text); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, archive.Bytes(), 0o600)
}

// busyboxLayer is a file system with a static busybox under several names.
func busyboxLayer() ([]byte, error) {
	path, err := exec.LookPath("busybox")
	if err != nil {
		return nil, fmt.Errorf("busybox: %w; install busybox-static", err)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, dir := range []string{"bin/", "etc/", "tmp/", "proc/", "sys/", "dev/"} {
		if err := addFile(w, &tar.Header{Name: dir, Typeflag: tar.TypeDir, Mode: 0o755}, nil); err != nil {
			return nil, err
		}
	}
	if err := addFile(w, &tar.Header{Name: "bin/busybox", Mode: 0o755}, program); err != nil {
		return nil, err
	}
	for _, name := range applets {
		if err := addFile(w, &tar.Header{Name: "bin/" + name, Typeflag: tar.TypeSymlink, Linkname: "busybox", Mode: 0o777}, nil); err != nil {
			return nil, err
		}
	}
	err = w.Close()
	return layer.Bytes(), err
}

func addFile(w *tar.Writer, header *tar.Header, text []byte) error {
	header.Size = int64(len(text))
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	_, err := w.Write(text)
	return err
}
