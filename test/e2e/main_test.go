// Package e2e tests Daybreak on a real node: kubelet, containerd and runc start
// real containers, on a control plane of its own, with the agent, the scheduler
// and the manager. Only the cards are made up, at their own boundary: a library
// that answers as the vendor's does, a tree like sysfs, and device nodes.
//
// Everything runs in namespaces of its own (mounts, processes, network), so the
// machine is left as it was whatever happens: /dev, /run and /var/lib/kubelet are
// the node's own, and all of its processes end with the first. Run it by `make
// e2e`, as root.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

const (
	// envBin names the folder with the binaries that `make e2e` built.
	envBin = "E2E_BIN"
	// envServers and envContainerd make an older cluster: a folder with the servers and
	// the kubelet of a version before 1.29, and one with containerd 1.7. `make compat`
	// sets them.
	envServers    = "E2E_SERVERS"
	envContainerd = "E2E_CONTAINERD"
	// envStage names the role of the test's binary, which runs itself; envDir is
	// the folder of this run.
	envStage = "E2E_STAGE"
	envDir   = "E2E_DIR"

	stageInit  = "init"
	stageTests = "tests"
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(envBin) == "":
		fmt.Fprintln(os.Stderr, "test/e2e: nothing was tested; make e2e builds a node and tests on it")
	case os.Getenv(envStage) == stageInit:
		os.Exit(report(becomeInit()))
	case os.Getenv(envStage) == stageTests:
		code := m.Run()
		stopWorld(code != 0)
		os.Exit(code)
	default:
		os.Exit(report(enter()))
	}
}

// report prints an error and returns the exit code.
func report(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		return exit.ExitCode()
	}
	fmt.Fprintln(os.Stderr, "test/e2e:", err)
	return 1
}

// again returns this binary with the same arguments, as another stage.
func again(ctx context.Context, stage string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), envStage+"="+stage)
	return cmd
}

// enter runs the tests in namespaces of their own and sweeps up after them.
func enter() error {
	if os.Getuid() != 0 {
		return errors.New("a real node needs root")
	}
	// The namespaces end when the thread that made them does.
	runtime.LockOSThread()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	unlock, err := lock()
	if err != nil {
		return err
	}
	defer unlock()
	sweep()
	defer sweep()
	dir, err := os.MkdirTemp("", runPrefix)
	if err != nil {
		return err
	}
	cmd := again(ctx, stageInit)
	cmd.Env = append(cmd.Env, envDir+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET,
		Pdeathsig:  syscall.SIGKILL,
	}
	return cmd.Run()
}

const (
	// runPrefix is how the folders of runs begin.
	runPrefix = "daybreak-e2e-"
)

// cgroup is the group below which all containers of this run are.
func cgroup() string { return filepath.Base(os.Getenv(envDir)) }

// ownFolders are replaced by empty ones inside the namespaces. To make those
// that are missing, the folders they are in are covered by a layer of our own:
// nothing is written to the machine's.
var (
	ownFolders = []string{"/run", "/var/lib/kubelet", "/var/lib/cni"}
	covered    = []string{"/etc", "/opt", "/var/lib", "/var/log"}
)

// lock keeps a second run on this machine away.
func lock() (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(os.TempDir(), runPrefix+"lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.New("another run of these tests is going on")
	}
	return func() { _ = file.Close() }, nil
}

// sweep removes what runs leave outside of their namespaces: folders, and
// groups of processes that have ended.
func sweep() {
	folders, _ := filepath.Glob(filepath.Join(os.TempDir(), runPrefix+"*[0-9]"))
	for _, dir := range folders {
		_ = os.RemoveAll(dir)
	}
	for _, pattern := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} {
		groups, _ := filepath.Glob(pattern + runPrefix + "*")
		for _, group := range groups {
			removeGroup(group)
		}
	}
}

// removeGroup removes a group of processes and those below it.
func removeGroup(path string) {
	entries, _ := os.ReadDir(path)
	for _, e := range entries {
		if e.IsDir() {
			removeGroup(filepath.Join(path, e.Name()))
		}
	}
	_ = os.Remove(path)
}

// becomeInit is the first process of the namespaces: it makes the machine that
// the node runs on, runs the tests, and takes care of orphans.
func becomeInit() error {
	if err := isolate(); err != nil {
		return err
	}
	cmd := again(context.Background(), stageTests)
	if err := cmd.Start(); err != nil {
		return err
	}
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return err
		case pid != cmd.Process.Pid:
		case status.ExitStatus() == 0:
			return nil
		default:
			return fmt.Errorf("the tests ended with %d (signal %d)", status.ExitStatus(), status.Signal())
		}
	}
}

// isolate gives the namespaces their own mounts and loopback device.
func isolate() error {
	type step struct {
		source, target, kind string
		flags                uintptr
		data                 string
	}
	steps := []step{
		{target: "/", flags: syscall.MS_REC | syscall.MS_PRIVATE},
		{source: "proc", target: "/proc", kind: "proc"},
	}
	// All of the run is in memory: a disk that has to write what others built
	// would hold containers up for a minute.
	layers := filepath.Join(os.Getenv(envDir), "layers")
	steps = append(steps, step{source: "tmpfs", target: os.Getenv(envDir), kind: "tmpfs", data: "mode=755"})
	for i, path := range covered {
		upper, work := filepath.Join(layers, fmt.Sprintf("upper%d", i)), filepath.Join(layers, fmt.Sprintf("work%d", i))
		steps = append(steps, step{target: upper}, step{target: work},
			step{source: "overlay", target: path, kind: "overlay", data: "lowerdir=" + path + ",upperdir=" + upper + ",workdir=" + work})
	}
	for _, path := range ownFolders {
		steps = append(steps, step{source: "tmpfs", target: path, kind: "tmpfs", data: "mode=755"})
	}
	for _, s := range steps {
		if err := os.MkdirAll(s.target, 0o755); err != nil {
			return err
		}
		if s.source == "" && s.flags == 0 {
			continue // only the folder
		}
		if err := syscall.Mount(s.source, s.target, s.kind, s.flags, s.data); err != nil {
			return fmt.Errorf("mount %s: %w", s.target, err)
		}
	}
	if err := ownDev(); err != nil {
		return err
	}
	if err := knownDriver(); err != nil {
		return err
	}
	// kubelet wants to share what it mounts with containers.
	for _, path := range []string{"/", "/var/lib/kubelet"} {
		if err := syscall.Mount("", path, "", syscall.MS_SHARED|syscall.MS_REC, ""); err != nil {
			return fmt.Errorf("share %s: %w", path, err)
		}
	}
	// The second leads to Services, which kube-proxy turns into addresses of pods.
	return ip("link set lo up", "address add "+nodeAddress+"/32 dev lo", "route add 10.0.0.0/16 dev lo")
}

// ip changes the network of this namespace.
func ip(commands ...string) error {
	for _, line := range commands {
		if out, err := exec.CommandContext(context.Background(), "ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w\n%s", line, err, out)
		}
	}
	return nil
}

// ownDev replaces /dev by one that has what every machine has and nothing else.
func ownDev() error {
	dev := filepath.Join(os.Getenv(envDir), "dev")
	if err := os.Mkdir(dev, 0o755); err != nil {
		return err
	}
	if err := syscall.Mount("tmpfs", dev, "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	for name, number := range map[string][2]int{
		"null": {1, 3}, "zero": {1, 5}, "full": {1, 7}, "random": {1, 8}, "urandom": {1, 9}, "kmsg": {1, 11}, "tty": {5, 0},
	} {
		if err := mknod(filepath.Join(dev, name), number[0], number[1]); err != nil {
			return err
		}
	}
	for name, target := range map[string]string{"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"} {
		if err := os.Symlink(target, filepath.Join(dev, name)); err != nil {
			return err
		}
	}
	for _, name := range []string{"pts", "shm", "dri"} {
		if err := os.Mkdir(filepath.Join(dev, name), 0o755); err != nil {
			return err
		}
	}
	for name, options := range map[string]string{"pts": "newinstance,ptmxmode=0666,mode=0620", "shm": "mode=1777"} {
		kind := map[string]string{"pts": "devpts", "shm": "tmpfs"}[name]
		if err := syscall.Mount(kind, filepath.Join(dev, name), kind, 0, options); err != nil {
			return fmt.Errorf("mount /dev/%s: %w", name, err)
		}
	}
	return syscall.Mount(dev, "/dev", "", syscall.MS_MOVE, "")
}

// knownDriver makes the kernel's list of drivers contain the one that makes the
// devices of slices.
func knownDriver() error {
	const list, head = "/proc/devices", "Character devices:\n"
	text, err := os.ReadFile(list)
	if err != nil {
		return err
	}
	own := filepath.Join(os.Getenv(envDir), "devices")
	changed := strings.Replace(string(text), head, fmt.Sprintf("%s%3d sgpu\n", head, majorSlice), 1)
	if err := os.WriteFile(own, []byte(changed), 0o644); err != nil {
		return err
	}
	return syscall.Mount(own, list, "", syscall.MS_BIND, "")
}

// mknod makes a character device that everybody may use.
func mknod(path string, major, minor int) error {
	number := (minor & 0xff) | (major&0xfff)<<8 | (minor&^0xff)<<12
	if err := syscall.Mknod(path, syscall.S_IFCHR|0o666, number); err != nil {
		return fmt.Errorf("make %s: %w", path, err)
	}
	return os.Chmod(path, 0o666)
}
