package local

import (
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// Nothing is known of the program in a simulated container but its command. One
// that is "sleep" runs for so long and, as the first process of a container,
// ignores SIGTERM; any other runs until it is stopped, and stops at once. An
// annotation of the pod overrides how long its containers run.

// runTime returns how long a container runs before it ends by itself, with exit
// code 0; ends is false if it does not.
func runTime(pod *corev1.Pod, c *corev1.Container) (d time.Duration, ends bool) {
	if text, ok := pod.Annotations[wire.AnnotationRunTime]; ok {
		d, err := time.ParseDuration(text)
		return d, err == nil && d >= 0
	}
	d, ends, _ = sleepOf(slices.Concat(c.Command, c.Args))
	return d, ends
}

// endOf returns when a running container ends by itself. Times in a status are in
// seconds, rounded down, so it ends after the second in which its time is up.
func endOf(pod *corev1.Pod, status *corev1.ContainerStatus) (at time.Time, ends bool) {
	c := containerOf(pod, status.Name)
	if c == nil || status.State.Running == nil {
		return time.Time{}, false
	}
	d, ends := runTime(pod, c)
	return status.State.Running.StartedAt.Add(d + time.Second), ends
}

// stopOf returns when a running container of a pod that is being deleted ends,
// and its exit code.
func stopOf(pod *corev1.Pod, status *corev1.ContainerStatus) (at time.Time, code int32) {
	grace := time.Duration(0)
	if seconds := pod.DeletionGracePeriodSeconds; seconds != nil {
		grace = time.Duration(*seconds) * time.Second
	}
	limit := pod.DeletionTimestamp.Time
	at, code = limit, exitKilled
	if c := containerOf(pod, status.Name); c != nil {
		if _, _, sleeps := sleepOf(slices.Concat(c.Command, c.Args)); !sleeps {
			at, code = limit.Add(preStop(c)-grace), exitTerminated
		}
	}
	if at.After(limit) {
		at, code = limit, exitKilled
	}
	if own, ends := endOf(pod, status); ends && own.Before(at) {
		at, code = own, 0
	}
	return at, code
}

func containerOf(pod *corev1.Pod, name string) *corev1.Container {
	if i := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == name }); i >= 0 {
		return &pod.Spec.Containers[i]
	}
	return nil
}

// preStop returns how long the container's preStop hook takes, if it sleeps.
func preStop(c *corev1.Container) time.Duration {
	if c.Lifecycle == nil || c.Lifecycle.PreStop == nil {
		return 0
	}
	hook := c.Lifecycle.PreStop
	if hook.Sleep != nil {
		return time.Duration(hook.Sleep.Seconds) * time.Second
	}
	if hook.Exec != nil {
		d, _, _ := sleepOf(hook.Exec.Command)
		return d
	}
	return 0
}

// sleepOf returns for how long a command sleeps, if sleeping is all that it does:
// "sleep 30", "sleep 1.5m", or one of them given to a shell. One that sleeps for
// ever does not end.
func sleepOf(command []string) (d time.Duration, ends, sleeps bool) {
	if len(command) == 3 && slices.Contains([]string{"sh", "ash", "bash", "dash"}, path.Base(command[0])) && command[1] == "-c" {
		command = strings.Fields(command[2])
		if len(command) > 0 && command[0] == "exec" {
			command = command[1:]
		}
	}
	if len(command) != 2 || path.Base(command[0]) != "sleep" {
		return 0, false, false
	}
	number, unit := command[1], time.Second
	for suffix, u := range map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour} {
		if rest, ok := strings.CutSuffix(number, suffix); ok {
			number, unit = rest, u
			break
		}
	}
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || math.IsNaN(n) || n < 0 {
		return 0, false, false
	}
	if n*float64(unit) > math.MaxInt64/2 { // infinity, or as good as
		return 0, false, true
	}
	return time.Duration(n * float64(unit)), true, true
}
