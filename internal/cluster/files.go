package cluster

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// ReadFiles reads Nodes, Pods, Devices and lists of them from the files, "-"
// being standard input. A file may hold several YAML documents, or JSON. What
// can't be read is an error that names the file and the document; a Device
// that is YAML but no sound Device costs its node only.
func ReadFiles(paths []string, stdin io.Reader) (*Objects, error) {
	r := newDecoder()
	for _, path := range paths {
		if err := r.file(path, stdin); err != nil {
			return nil, err
		}
	}
	return r.objects, nil
}

// decoder sorts documents into objects.
type decoder struct {
	objects *Objects
	// from says where a file or an object was read, to tell of one that comes
	// twice.
	from map[string]string
}

func newDecoder() *decoder {
	return &decoder{objects: &Objects{Devices: map[string]Device{}}, from: map[string]string{}}
}

func (r *decoder) file(path string, stdin io.Reader) error {
	name := path
	if path == "-" {
		name = "standard input"
	}
	if _, ok := r.from["file "+name]; ok {
		return fmt.Errorf("%s is named twice", name)
	}
	r.from["file "+name] = name
	text, err := readAll(path, stdin)
	if err != nil {
		return err
	}
	if len(text) >= dumpSize {
		if documents, pieces, err := splitDump(text); err == nil {
			return r.dump(documents, pieces, name)
		}
	}
	return r.general(text, name)
}

func readAll(path string, stdin io.Reader) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(stdin)
	}
	return os.ReadFile(path)
}

// general takes in the documents of a file, whatever they look like.
func (r *decoder) general(text []byte, name string) error {
	docs := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for n := 1; ; {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s, document %d: %w", name, n, err)
		}
		for _, text := range split(doc) {
			found, err := r.document(text, fmt.Sprintf("%s, document %d", name, n))
			if err != nil {
				return err
			}
			if found {
				n++
			}
		}
	}
}

// split takes apart what stands between two separators: JSON objects may follow
// each other without one, and a line of three dots ends a YAML document. The
// YAML decoder would read the first and pass over the others without a word.
func split(doc []byte) [][]byte {
	rest := bytes.TrimPrefix(doc, []byte("---"))
	var parts [][]byte
	dec := json.NewDecoder(bytes.NewReader(rest))
	for {
		var value json.RawMessage
		end := dec.InputOffset()
		if dec.Decode(&value) != nil || value[0] != '{' {
			rest = rest[end:]
			break
		}
		parts = append(parts, value)
	}
	for _, part := range dots.Split(string(rest), -1) {
		parts = append(parts, []byte(part))
	}
	return parts
}

var dots = regexp.MustCompile(`(?m)^\.{3}[ \t\r]*$`)

// document takes in one document, and reports whether there was anything in it
// but comments.
func (r *decoder) document(doc []byte, at string) (found bool, err error) {
	text, err := yaml.YAMLToJSONStrict(doc)
	if err != nil {
		return false, fmt.Errorf("%s: %w", at, err)
	}
	if bytes.Equal(text, []byte("null")) {
		return false, nil
	}
	return true, r.object(text, at, metav1.TypeMeta{})
}

// object takes in one object, or the items of a list. What the API server
// itself lists does not repeat the kind in every item: then it is implied.
func (r *decoder) object(text []byte, at string, implied metav1.TypeMeta) error {
	var head struct {
		metav1.TypeMeta
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return fmt.Errorf("%s: not a Kubernetes object: %w", at, plain(err))
	}
	if head.TypeMeta == (metav1.TypeMeta{}) {
		head.TypeMeta = implied
	}
	if head.APIVersion == "" || head.Kind == "" {
		return fmt.Errorf("%s: no apiVersion or no kind: want a v1 Node, Pod or List, or a %s", at, deviceKind)
	}
	if isList(head.TypeMeta) {
		item := itemsOf(head.TypeMeta)
		for i, text := range head.Items {
			if err := r.object(text, fmt.Sprintf("%s, item %d", at, i+1), item); err != nil {
				return err
			}
		}
		return nil
	}
	switch gvk := head.APIVersion + " " + head.Kind; gvk {
	case "v1 Node":
		return r.node(text, at)
	case "v1 Pod":
		return r.pod(text, at)
	case deviceKind:
		return r.device(text, head.Metadata.Name, at)
	default:
		r.objects.Notes = append(r.objects.Notes, fmt.Sprintf("%s: passed over %s %s: only Nodes, Pods, Devices and Lists are read", at, gvk, head.Metadata.Name))
		return nil
	}
}

func isList(t metav1.TypeMeta) bool {
	switch t.APIVersion + " " + t.Kind {
	case "v1 List", "v1 NodeList", "v1 PodList", deviceKind + "List":
		return true
	}
	return false
}

// itemsOf returns the kind of a list's items: none for a v1 List, whose items
// say it themselves.
func itemsOf(list metav1.TypeMeta) metav1.TypeMeta {
	kind := strings.TrimSuffix(list.Kind, "List")
	if kind == "" {
		return metav1.TypeMeta{}
	}
	return metav1.TypeMeta{APIVersion: list.APIVersion, Kind: kind}
}

var deviceKind = v1alpha1.GroupVersion.String() + " Device"

// once refuses an object that was read before.
func (r *decoder) once(kind, name, at string) error {
	key := kind + " " + name
	if before, ok := r.from[key]; ok {
		return fmt.Errorf("%s: %s was already read from %s", at, key, before)
	}
	r.from[key] = at
	return nil
}

func (r *decoder) node(text []byte, at string) error {
	node, err := wire.DecodeNode(text)
	if err != nil {
		return fmt.Errorf("%s: Node: %w", at, plain(err))
	}
	return r.addNode(node, at)
}

func (r *decoder) addNode(node *corev1.Node, at string) error {
	if node.Name == "" {
		return fmt.Errorf("%s: a Node without a name", at)
	}
	r.objects.Nodes = append(r.objects.Nodes, node)
	return r.once("Node", node.Name, at)
}

func (r *decoder) pod(text []byte, at string) error {
	pod, err := wire.DecodePod(text)
	if err != nil {
		return fmt.Errorf("%s: Pod: %w", at, plain(err))
	}
	return r.addPod(pod, at)
}

func (r *decoder) addPod(pod *corev1.Pod, at string) error {
	if pod.Namespace == "" {
		pod.Namespace = metav1.NamespaceDefault
	}
	if pod.Name == "" {
		if pod.GenerateName == "" {
			return fmt.Errorf("%s: a Pod without a name", at)
		}
		// What the API server would do, but the same at every run.
		pod.Name = fmt.Sprintf("%s%d", pod.GenerateName, len(r.objects.Pods)+1)
	}
	defaultCPU(pod.Spec.Containers)
	defaultCPU(pod.Spec.InitContainers)
	r.objects.Pods = append(r.objects.Pods, pod)
	return r.once("Pod", pod.Namespace+"/"+pod.Name, at)
}

// defaultCPU does what the API server does with a limit that no request goes
// with.
func defaultCPU(containers []corev1.Container) {
	for i := range containers {
		r := &containers[i].Resources
		limit, limited := r.Limits[corev1.ResourceCPU]
		if _, ok := r.Requests[corev1.ResourceCPU]; ok || !limited {
			continue
		}
		if r.Requests == nil {
			r.Requests = corev1.ResourceList{}
		}
		r.Requests[corev1.ResourceCPU] = limit
	}
}

func (r *decoder) device(text []byte, name, at string) error {
	return r.addDevice(DecodeDevice(text), name, at)
}

func (r *decoder) addDevice(device Device, name, at string) error {
	if name == "" {
		return fmt.Errorf("%s: a Device without a name", at)
	}
	r.objects.Devices[name] = device
	return r.once("Device", name, at)
}

// DecodeDevice decodes a Device. What can't be decoded is the node's problem
// and not the reader's.
func DecodeDevice(text []byte) Device {
	device, err := wire.DecodeDevice(text)
	if err != nil {
		return Device{Err: fmt.Errorf("the Device can't be decoded: %w", plain(err))}
	}
	return Device{Device: device}
}
