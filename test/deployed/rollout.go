package deployed

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/daybreak-gpu/daybreak/test/machine"
)

// RolledOut waits until a part runs in this version alone, as its controller says
// and as it is.
func (w *World) RolledOut(component, version string) {
	w.Helper()
	err := machine.Until(w.Ctx, 2*time.Minute, func() error {
		if err := w.complete(component, version); err != nil {
			return err
		}
		for _, x := range w.Parts.WithProcess() {
			if x.Component == component && x.Version != version {
				return fmt.Errorf("%s still runs in the %s version", x.Pod.Name, x.Version)
			}
		}
		return nil
	})
	if err != nil {
		w.Fatalf("roll out the %s version of the %s: %v\n%v", version, component, err, w.TakeFaults())
	}
}

// complete says what is missing until a workload is rolled out, as kubectl rollout
// status does.
func (w *World) complete(component, version string) error {
	apps, name := w.Client.AppsV1(), "daybreak-"+component
	var image string
	var done bool
	var status any
	if component == "agent" {
		d, err := apps.DaemonSets(Namespace).Get(w.Ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		s := d.Status
		image, status = d.Spec.Template.Spec.Containers[0].Image, s
		done = s.ObservedGeneration == d.Generation && int(s.UpdatedNumberScheduled) == w.Nodes && int(s.NumberAvailable) == w.Nodes
	} else {
		d, err := apps.Deployments(Namespace).Get(w.Ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		s := d.Status
		image, status = d.Spec.Template.Spec.Containers[0].Image, s
		done = s.ObservedGeneration == d.Generation && s.UpdatedReplicas == *d.Spec.Replicas && s.AvailableReplicas == s.UpdatedReplicas && s.Replicas == s.UpdatedReplicas
	}
	if !done || !strings.HasSuffix(image, ":"+version) {
		return fmt.Errorf("%s has image %s, status %+v", name, image, status)
	}
	return nil
}
