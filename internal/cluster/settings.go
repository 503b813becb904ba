package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/quota"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// Settings are what the leading scheduler or manager is configured with, as far as
// answers depend on it. The leader writes them on the Lease of its election.
type Settings struct {
	// Holder is the identity of the leader.
	Holder string `json:"holder"`
	// Profiles are those of the scheduler that enable Daybreak's plugin, by schedulerName.
	Profiles map[string]Profile `json:"profiles,omitempty"`
	// ToleratedTaint is what the manager makes pods with cards tolerate, as KEY:EFFECT;
	// empty for nothing.
	ToleratedTaint string `json:"toleratedTaint,omitempty"`

	unknown string // why they are, if they are
}

// Profile is the configuration of Daybreak's plugin in a profile.
type Profile struct {
	// Policy applies to pods without one in their annotations; empty is the default.
	Policy    string `json:"policy,omitempty"`
	QuotaKeys string `json:"quotaKeys"`
}

// leasesPeriod is the time between two reads of the Leases.
const leasesPeriod = 30 * time.Second

// Publish writes the settings on the Lease that this process holds; its identity begins
// with the given text. Publish retries until it has succeeded or the context ends. The
// Lease is updated as it was read, so that settings of a later leader stay.
func (s Settings) Publish(ctx context.Context, leases coordinationclient.LeaseInterface, name, identity string) {
	reported := false
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Steps: 10, Cap: time.Minute}
	_ = backoff.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		lease, err := leases.Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			if s.Holder = holderOf(lease); !strings.HasPrefix(s.Holder, identity) {
				return false, nil // this process is about to end
			}
			text, _ := json.Marshal(s) // strings, which can't fail
			metav1.SetMetaDataAnnotation(&lease.ObjectMeta, wire.AnnotationSettings, string(text))
			_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
		}
		if err != nil && !apierrors.IsConflict(err) && !reported {
			reported = true
			klog.FromContext(ctx).Error(err, "Settings are not published yet; retrying", "lease", name)
		}
		return err == nil, nil
	})
}

func holderOf(lease *coordinationv1.Lease) string { return ptr.Deref(lease.Spec.HolderIdentity, "") }

// leasesOf returns the Leases of the scheduler, which may replace kube-scheduler, or of
// the manager.
func leasesOf(part, daybreak string) []string {
	if part == "scheduler" {
		return []string{"kube-system/" + wire.SchedulerComponent, "kube-system/kube-scheduler"}
	}
	return []string{cmp.Or(daybreak, wire.Namespace) + "/" + wire.ManagerComponent}
}

// readSettings reads the settings on the Leases, by their names. An error is a reason
// why they are unknown.
func readSettings(ctx context.Context, client kubernetes.Interface, daybreak string) map[string]Settings {
	ctx, cancel := context.WithTimeout(ctx, serverTimeout)
	defer cancel()
	all := map[string]Settings{}
	for _, key := range slices.Concat(leasesOf("scheduler", daybreak), leasesOf("manager", daybreak)) {
		namespace, name, _ := strings.Cut(key, "/")
		lease, err := client.CoordinationV1().Leases(namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsForbidden(err):
			all[key] = Settings{unknown: "is forbidden to this user (the chart's ClusterRole daybreak-viewer has the right)"}
		case err == nil:
			all[key] = settingsOf(lease)
		case !apierrors.IsNotFound(err):
			all[key] = Settings{unknown: "can't be read: " + err.Error()}
		}
	}
	return all
}

// settingsOf returns the settings on a Lease.
func settingsOf(lease *coordinationv1.Lease) (s Settings) {
	text, ok := lease.Annotations[wire.AnnotationSettings]
	if !ok {
		return Settings{unknown: "has none"}
	}
	err := wire.CheckSize(text)
	if err == nil {
		err = yaml.UnmarshalStrict([]byte(text), &s)
	}
	switch {
	case err != nil:
		s.unknown = fmt.Sprintf("has invalid ones: %v", err)
	case s.Holder == "" || s.Holder != holderOf(lease):
		s.unknown = "has those of an earlier leader"
	}
	return s
}

// settingsOn returns the settings that were read for the part. If none are known, a
// note has the reasons; files need not have Leases.
func (s *Snapshot) settingsOn(read map[string]Settings, part string) (known []Settings) {
	var reasons []string
	for _, lease := range leasesOf(part, s.plugin.Daybreak) {
		settings, ok := read[lease]
		if !ok {
			settings.unknown = "is missing"
		}
		if settings.unknown == "" {
			known = append(known, settings)
		}
		reasons = append(reasons, "Lease "+lease+" "+settings.unknown)
	}
	if (s.Live || len(read) > 0) && len(known) == 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("the %s's settings are unknown: %s; the chart's defaults are assumed", part, strings.Join(reasons, ", ")))
	}
	return known
}

// setSettings sets the settings that were read, or the chart's defaults.
func (s *Snapshot) setSettings(read map[string]Settings) {
	s.profiles, s.taint = map[string]Profile{}, "metax-tech.com/gpu:NoSchedule"
	for _, scheduler := range s.settingsOn(read, "scheduler") {
		maps.Copy(s.profiles, scheduler.Profiles)
	}
	for _, manager := range s.settingsOn(read, "manager") {
		s.taint = manager.ToleratedTaint
	}
}

// chartProfiles are the names that the chart gives the scheduler, in its two modes
// together.
var chartProfiles = []string{"daybreak", corev1.DefaultSchedulerName}

// Profiles returns the schedulerNames that Daybreak serves. Where they are not known,
// the names are those of the chart.
func (s *Snapshot) Profiles() (names []string, known bool) {
	if len(s.profiles) == 0 {
		return chartProfiles, false
	}
	return slices.Sorted(maps.Keys(s.profiles)), true
}

// common returns what the profiles have in common, if they agree.
func (s *Snapshot) common(of func(Profile) string) (value string, ok bool) {
	first := true
	for _, p := range s.profiles {
		if !first && of(p) != value {
			return "", false
		}
		value, first = of(p), false
	}
	return value, !first
}

// QuotaKeys returns what the schedulers do about HAMi's keys in quotas: they enforce
// them, unless all say otherwise.
func (s *Snapshot) QuotaKeys() string {
	if keys, _ := s.common(func(p Profile) string { return p.QuotaKeys }); keys == quota.Warn || keys == quota.Off {
		return keys
	}
	return quota.Enforce
}

// QuotaEverywhere reports whether pods with cards that carry no amounts are rejected
// in all namespaces, as the chart labels the manager's pods.
func (s *Snapshot) QuotaEverywhere() bool {
	return slices.ContainsFunc(s.Facts, func(f Facts) bool {
		return slices.ContainsFunc(f.Pods, func(pod *corev1.Pod) bool {
			return s.plugin.IsComponent(pod, "manager") && pod.Labels[wire.LabelQuota] == wire.QuotaEnforced
		})
	})
}

// Policy returns the policy of the profile that the pod is for, or that of all of
// them where none goes by the pod's schedulerName: admission may be yet to give it
// one. It is not known where they differ, or none can be read.
func (s *Snapshot) Policy(pod *corev1.Pod) (policy place.Policy, known bool) {
	profile, known := s.profiles[pod.Spec.SchedulerName]
	if !known {
		profile.Policy, known = s.common(func(p Profile) string { return p.Policy })
	}
	policy, err := request.ParsePolicy(profile.Policy)
	return policy, known && (err == nil || profile.Policy == "")
}

// Tolerations returns what admission adds to pods with cards.
func (s *Snapshot) Tolerations() []corev1.Toleration {
	key, effect, ok := strings.Cut(s.taint, ":")
	if !ok {
		return nil
	}
	return []corev1.Toleration{{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffect(effect)}}
}
