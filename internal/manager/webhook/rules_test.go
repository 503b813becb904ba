package webhook

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

var user = &authenticationv1.UserInfo{Username: "jane"}

func rules() Rules { return Rules{Schedulers: []string{"daybreak", "metax-scheduler"}} }

func ask(limits string) *gputest.PodBuilder { return gputest.MakePod("p").App(limits) }

func scheduler(b *gputest.PodBuilder, name string) *gputest.PodBuilder {
	b.Obj().Spec.SchedulerName = name
	return b
}

func privileged(b *gputest.PodBuilder, containers ...int) *gputest.PodBuilder {
	for _, i := range containers {
		b.Obj().Spec.Containers[i].SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
	}
	return b
}

func privilegedInit(value bool) *gputest.PodBuilder {
	b := gputest.MakePod("p").Init("sgpu: 1").App("")
	b.Obj().Spec.InitContainers[0].SecurityContext = &corev1.SecurityContext{Privileged: &value}
	return b
}

func TestScheduler(t *testing.T) {
	cases := map[string]struct {
		pod  *gputest.PodBuilder
		want string
	}{
		"none is ours":                       {pod: ask("sgpu: 1"), want: "daybreak"},
		"the cluster's default is ours":      {pod: scheduler(ask("sgpu: 1"), "default-scheduler"), want: "daybreak"},
		"another name of ours stays":         {pod: scheduler(ask("sgpu: 1"), "metax-scheduler"), want: "metax-scheduler"},
		"another scheduler, on purpose":      {pod: scheduler(ask("sgpu: 1"), "volcano"), want: "volcano"},
		"Koordinator's words":                {pod: ask("gpu-core: 10, gpu-memory: 1Gi"), want: "daybreak"},
		"Koordinator's words, another's pod": {pod: scheduler(ask("gpu-core: 10, gpu-memory: 1Gi"), "koord-scheduler"), want: "koord-scheduler"},
		"no card":                            {pod: scheduler(ask("cpu: 1"), "default-scheduler"), want: "default-scheduler"},
		"no card after all":                  {pod: scheduler(ask("sgpu: 0"), "default-scheduler"), want: "default-scheduler"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pod := tc.pod.Obj()
			r := rules()
			if v := r.Admit(pod, user); len(v.Problems) > 0 {
				t.Fatal(v.Problems)
			}
			gputest.Equal(t, "scheduler", tc.want, pod.Spec.SchedulerName)
		})
	}
}

// TestLabel: pods that are given cards are marked, whatever their user wrote.
func TestLabel(t *testing.T) {
	for name, tc := range map[string]struct {
		limits, label, want string
	}{
		"cards":                  {limits: "sgpu: 1", want: "true"},
		"cards, and the label":   {limits: "sgpu: 1", label: "true", want: "true"},
		"cards, and another":     {limits: "sgpu: 1", label: "false", want: "true"},
		"no card":                {limits: "cpu: 1"},
		"no card, and the label": {limits: "cpu: 1", label: "true", want: "true"},
	} {
		pod := ask(tc.limits).Obj()
		if tc.label != "" {
			pod.Labels = map[string]string{wire.LabelAdmitted: tc.label}
		}
		r := rules()
		r.Admit(pod, user)
		gputest.Equal(t, name+": label", tc.want, pod.Labels[wire.LabelAdmitted])
	}
}

// TestUntouched: pods that are none of our business stay as they are, even where
// we would refuse others.
func TestUntouched(t *testing.T) {
	node := &authenticationv1.UserInfo{Username: "system:node:n1", Groups: []string{"system:nodes"}}
	static := func(node string) *gputest.PodBuilder {
		return ask("sgpu: 1").On(node).Annotate(corev1.MirrorPodAnnotationKey, "x")
	}
	cases := map[string]struct {
		pod       *gputest.PodBuilder
		user      *authenticationv1.UserInfo
		untouched bool
	}{
		"no card":                      {pod: privileged(ask("cpu: 1").On("n1").Annotate(wire.AnnotationAllocated, "x"), 0), user: user, untouched: true},
		"no card, in a template's way": {pod: privileged(ask("sgpu: 0").On("n1"), 0), user: user, untouched: true},
		"a static pod":                 {pod: static("n1"), user: node, untouched: true},
		"a static pod of elsewhere":    {pod: static("n2"), user: node},
		"a user claims it is static":   {pod: static("n1"), user: user},
		"a user with a node's name":    {pod: static("n1"), user: &authenticationv1.UserInfo{Username: "system:node:n1"}},
		"bound by a kubelet, no file":  {pod: ask("sgpu: 1").On("n1"), user: node},
		"another vendor's, by a scheduler of its own": {
			pod: scheduler(privileged(ask("gpu-core: 500, gpu-memory: 1Gi"), 0), "koord-scheduler"), user: user, untouched: true,
		},
		"a typing error, by a scheduler of its own": {
			pod: scheduler(ask("metax-tech.com/sgpus: 1, koordinator.sh/gpu-cores: 1").Annotate("hami.io/x", "y"), "volcano"), user: user, untouched: true,
		},
		"no card, and a typing error in an annotation": {pod: ask("cpu: 1").Annotate("metax-tech.com/use-gpuuid", "x"), user: user, untouched: true},
		"another vendor's, with HAMi's annotations":    {pod: ask("nvidia.com/gpu: 1").Annotate("hami.io/gpu-schedule-policy", "x"), user: user, untouched: true},
		"MetaX's, by a scheduler of its own": {
			pod: scheduler(ask("gpu-core: 500, gpu-memory: 1Gi, sgpu: 1"), "koord-scheduler"), user: user,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pod := tc.pod.Obj()
			before := pod.DeepCopy()
			r := rules()
			v := r.Admit(pod, tc.user)
			if got := len(v.Problems) == 0 && len(v.Warnings) == 0 && cmp.Equal(before, pod); got != tc.untouched {
				t.Errorf("untouched: %v, want %v (problems %v)", got, tc.untouched, v.Problems)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	const sayPrivileged = `a privileged container sees every card of its node: write false, or let an administrator label the namespace daybreak-gpu.io/allow-privileged: "true"`
	cases := map[string]struct {
		pod   *gputest.PodBuilder
		allow bool
		want  []string
	}{
		"bound by the user": {
			pod: ask("sgpu: 1").On("n1"),
			want: []string{`spec.nodeName: Invalid value: "n1": the scheduler chooses the cards together with the node: leave it out, ` +
				`and to choose the node write nodeSelector: {kubernetes.io/hostname: n1}`},
		},
		"privileged": {
			pod: privileged(ask("sgpu: 1"), 0), want: []string{"spec.containers[0].securityContext.privileged: Invalid value: true: " + sayPrivileged},
		},
		"privileged next to the one with the card": {
			pod: privileged(ask("sgpu: 1").App(""), 1), want: []string{"spec.containers[1].securityContext.privileged: Invalid value: true: " + sayPrivileged},
		},
		"a privileged init container": {
			pod: privilegedInit(true), want: []string{"spec.initContainers[0].securityContext.privileged: Invalid value: true: " + sayPrivileged},
		},
		"an init container that is not": {pod: privilegedInit(false)},
		"privileged, where that may be": {pod: privileged(ask("sgpu: 1"), 0), allow: true},
		"a typing error alone": {
			pod:  ask("metax-tech.com/sgpus: 1"),
			want: []string{`spec.containers[0].resources.limits[metax-tech.com/sgpus]: Invalid value: "1": there is no such resource: did you mean metax-tech.com/sgpu?`},
		},
		"a typing error next to others": {
			pod: scheduler(ask("sgpu: 1, vcore: 120, metax-tech.com/vmem: 4"), "metax-scheduler"),
			want: []string{
				`spec.containers[0].resources.limits[metax-tech.com/vcore]: Invalid value: "120": is in percent: write a whole number from 0 to 100`,
				`spec.containers[0].resources.limits[metax-tech.com/vmem]: Invalid value: "4": there is no such resource: did you mean metax-tech.com/vmemory?`,
			},
		},
		"a typing error in a pod of another scheduler's": {pod: scheduler(ask("sgpu: 1, metax-tech.com/vmem: 4"), "volcano")},
		"no room for the allocation": {
			pod: ask("sgpu: 1, vcore: 10, vmemory: 1").Annotate("a", strings.Repeat("x", 262_000)),
			want: []string{"metadata.annotations: Forbidden: the pod's own annotations have 262001 bytes and the allocation needs 694, " +
				"and an object has at most 262144: shorten the pod's own by 551"},
		},
		"an allocation that was taken off leaves room": {
			pod: ask("sgpu: 1, vcore: 10, vmemory: 1").Annotate(wire.AnnotationAllocated, strings.Repeat("x", 262_000)),
		},
		"all at once": {
			pod: privileged(ask("sgpu: 1, vcore: 120").App("sgpu: 1, vmemory: 0").On("n1").Annotate(wire.AnnotationQoS, "best"), 0, 1),
			want: []string{
				`spec.containers[0].resources.limits[metax-tech.com/vcore]: Invalid value: "120": is in percent: write a whole number from 0 to 100`,
				`spec.containers[1].resources.limits[metax-tech.com/vmemory]: Invalid value: "0": a number without a unit is GiB: write 1 to 999, or an amount with a unit such as 512Mi`,
				`metadata.annotations[metax-tech.com/sgpu-qos-policy]: Invalid value: "best": write "best-effort", "fixed-share" or "burst-share", or leave the annotation out for best-effort`,
				`spec.nodeName: Invalid value: "n1": the scheduler chooses the cards together with the node: leave it out, ` +
					`and to choose the node write nodeSelector: {kubernetes.io/hostname: n1}`,
				"spec.containers[0].securityContext.privileged: Invalid value: true: " + sayPrivileged,
				"spec.containers[1].securityContext.privileged: Invalid value: true: " + sayPrivileged,
			},
		},
	}
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		tc := cases[name]
		t.Run(name, func(t *testing.T) {
			r := rules()
			r.Privileged = tc.allow
			var got []string
			for _, p := range r.Admit(tc.pod.Obj(), user).Problems {
				got = append(got, p.Error())
			}
			gputest.Equal(t, "answer", tc.want, got)
		})
	}
}

// TestDirectBinders: the vendor operator's validators choose their node. Others,
// who have no such right, may only show static pods so.
func TestDirectBinders(t *testing.T) {
	const operator = "system:serviceaccount:metax-operator:validator"
	r := rules()
	r.DirectBinders = []string{operator}
	cases := map[string]struct {
		pod   *gputest.PodBuilder
		user  string
		wants string // the field of the only problem
	}{
		"a validator":                           {pod: ask("gpu: 1").On("n1"), user: operator},
		"a validator with a slice":              {pod: ask("sgpu: 1, vcore: 10, vmemory: 1").On("n1"), user: operator},
		"a validator with an invalid request":   {pod: ask("sgpu: 1, vcore: 120").On("n1"), user: operator, wants: "spec.containers[0].resources.limits[metax-tech.com/vcore]"},
		"someone else":                          {pod: ask("gpu: 1").On("n1"), user: "jane", wants: "spec.nodeName"},
		"someone else, another scheduler":       {pod: scheduler(ask("sgpu: 1").On("n1"), "volcano"), user: "jane", wants: "spec.nodeName"},
		"someone else, Koordinator's words":     {pod: ask("gpu-core: 10, gpu-memory: 1Gi").On("n1"), user: "jane", wants: "spec.nodeName"},
		"another vendor's, Koordinator's words": {pod: scheduler(ask("gpu-core: 1").On("n1"), "koord-scheduler"), user: "jane"},
		"Volcano's, which it will bind":         {pod: scheduler(ask("sgpu: 1"), "volcano"), user: "jane"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pod := tc.pod.Obj()
			named := pod.Spec.SchedulerName
			v := r.Admit(pod, &authenticationv1.UserInfo{Username: tc.user})
			var fields []string
			for _, p := range v.Problems {
				fields = append(fields, p.Field)
			}
			if strings.Join(fields, ", ") != tc.wants {
				t.Errorf("problems %v, want one with %q", v.Problems, tc.wants)
			}
			if pod.Spec.NodeName != "" && pod.Spec.SchedulerName != named {
				t.Errorf("a bound pod was given to scheduler %q", pod.Spec.SchedulerName)
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	pod := ask("sgpu: 1").Annotate(wire.AnnotationAllocated, "[]").Annotate("hami.io/metax-sgpu-devices-allocated", ";").Annotate("hami.io/device-scoring-weights", "slot=1").
		Annotate("metax-tech.com/use-gpuuid", "GPU-1").Annotate("gang.scheduling.koordinator.sh/name", "g").Obj()
	r := rules()
	v := r.Admit(pod, user)
	want := []string{
		"metadata.annotations[hami.io/metax-sgpu-devices-allocated] was taken off: the scheduler alone writes which cards a pod holds",
		"metadata.annotations[metax-tech.com/gpu-devices-allocated] was taken off: the scheduler alone writes which cards a pod holds",
		"hami.io/device-scoring-weights has no effect: slots, compute and memory weigh the same",
		"metax-tech.com/use-gpuuid has no effect: Daybreak does not know this annotation: did you mean metax-tech.com/use-gpuuuid?",
		"gang.scheduling.koordinator.sh/name has no effect: gangs are not supported yet, each pod is placed by itself",
	}
	gputest.Equal(t, "warnings", want, v.Warnings)
	for key := range pod.Annotations {
		if allocation.IsAllocation(key) {
			t.Errorf("%s is still there", key)
		}
	}
	gputest.Equal(t, "the second time", want[2:], r.Admit(pod, user).Warnings)
}

// TestAmounts: a pod that Daybreak will schedule gets its amounts on the first app
// container, whatever its user wrote. Other pods keep what they have.
func TestAmounts(t *testing.T) {
	const forged = ", daybreak-gpu.io/compute: 1, daybreak-gpu.io/memory: 1, daybreak-gpu.io/cards: 0"
	cases := map[string]struct {
		pod *gputest.PodBuilder
		// known is the largest card, 0 for none, and fallback what counts then.
		known, fallback gpu.MiB
		// want are the amounts of the containers, in the order of the spec.
		want []string
	}{
		"amounts in bytes":            {pod: ask("sgpu: 2, vcore: 30, vmemory: 4"), known: 1, want: []string{"60 8Gi 0"}},
		"whole cards":                 {pod: ask("gpu: 2"), known: 80 << 10, want: []string{"200 160Gi 2"}},
		"whole cards, none known":     {pod: ask("gpu: 2"), want: []string{"200 128Gi 2"}},
		"whole cards, as configured":  {pod: ask("gpu: 2"), fallback: 32 << 10, want: []string{"200 64Gi 2"}},
		"absent amounts":              {pod: ask("sgpu: 1"), known: 80 << 10, want: []string{"100 80Gi 1"}},
		"absent memory":               {pod: ask("sgpu: 1, vcore: 10"), known: 80 << 10, want: []string{"10 80Gi 0"}},
		"a ratio":                     {pod: ask("gpu-core: 10, gpu-memory-ratio: 50"), known: 80 << 10, want: []string{"10 40Gi 0"}},
		"an online pod":               {pod: ask("sgpu: 1, vmemory: 4").Annotate(wire.AnnotationClass, "online"), want: []string{"100 4Gi 1"}},
		"alone on eight cards":        {pod: ask("sgpu: 8, vmemory: 1Mi"), known: 80 << 10, want: []string{"800 640Gi 8"}},
		"alone, none known":           {pod: ask("gpu-core: 100, gpu-memory: 1Gi"), want: []string{"100 64Gi 1"}},
		"alone, more than the card":   {pod: ask("sgpu: 1, vmemory: 96"), known: 80 << 10, want: []string{"100 96Gi 1"}},
		"the second one asks":         {pod: ask("cpu: 1").App("sgpu: 1, vcore: 10, vmemory: 1"), want: []string{"10 1Gi 0", ""}},
		"an init container asks most": {pod: ask("sgpu: 1, vcore: 10, vmemory: 1").Init("gpu: 1"), want: []string{"", "100 64Gi 1"}},
		"its user wrote some everywhere": {
			pod:  ask("sgpu: 1, vcore: 10, vmemory: 1" + forged).App("cpu: 1" + forged).Init("cpu: 1" + forged),
			want: []string{"", "10 1Gi 0", ""},
		},
		"another scheduler's":            {pod: scheduler(ask("sgpu: 1"), "volcano"), want: []string{""}},
		"another scheduler's, with some": {pod: scheduler(ask("sgpu: 1"+forged), "volcano"), want: []string{"1 1 0"}},
		"comes bound":                    {pod: ask("sgpu: 1").On("n1"), want: []string{""}},
		"no card":                        {pod: ask("cpu: 1"), want: []string{""}},
		"0 cards, with some":             {pod: ask("sgpu: 0" + forged), want: []string{"1 1 0"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := rules()
			r.DirectBinders, r.CardMemory = []string{user.Username}, tc.fallback
			r.LargestCard = func(*corev1.Pod, *gpu.PodRequest) (gpu.MiB, bool) { return tc.known, tc.known > 0 }
			pod := tc.pod.Obj()
			if v := r.Admit(pod, user); len(v.Problems) > 0 {
				t.Fatal(v.Problems)
			}
			var limits, requests []string
			for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
				limits, requests = append(limits, amounts(c.Resources.Limits)), append(requests, amounts(c.Resources.Requests))
			}
			gputest.Equal(t, "limits", tc.want, limits)
			if ours := pod.Spec.SchedulerName == "daybreak"; ours && !cmp.Equal(limits, requests) {
				t.Errorf("requests %q, limits %q", requests, limits)
			}
		})
	}
}

// amounts returns compute, memory and cards, or nothing where there are none.
func amounts(list corev1.ResourceList) string {
	var words []string
	for _, name := range wire.AmountResources() {
		if q, ok := list[name]; ok {
			words = append(words, q.String())
		}
	}
	return strings.Join(words, " ")
}

// TestLargestCard: cards are looked up only for pods whose memory depends on them.
func TestLargestCard(t *testing.T) {
	for limits, want := range map[string]bool{
		"gpu: 1": true, "sgpu: 1": true, "sgpu: 1, vcore: 10": true, "gpu-core: 10, gpu-memory-ratio: 20": true, "koordinator.sh/gpu: 100": true,
		"sgpu: 1, vmemory: 4": true, "sgpu: 2, vcore: 10, vmemory: 4": false, "gpu-core: 10, gpu-memory: 1Gi": false, "sgpu: 0": false, "cpu: 1": false,
	} {
		asked, r := false, rules()
		r.LargestCard = func(*corev1.Pod, *gpu.PodRequest) (gpu.MiB, bool) { asked = true; return 0, false }
		r.Admit(ask(limits).App("cpu: 1").Obj(), user)
		gputest.Equal(t, limits+": cards were looked up", want, asked)
	}
}
