// Kubelet is Kubernetes' own, on a machine that it takes for a large server: the
// pods that users write for one ask for more processors and memory than the
// machine of a test has. Nothing else of it is different.
//
//	kubelet CONFIG KUBECONFIG ROOT NODE ADDRESS
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	cadvisorapi "github.com/google/cadvisor/info/v1"
	genericapiserver "k8s.io/apiserver/pkg/server"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kubelet/app"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	"k8s.io/kubernetes/pkg/kubelet/cadvisor"
	"k8s.io/kubernetes/pkg/kubelet/kubeletconfig/configfiles"
	utilfs "k8s.io/kubernetes/pkg/util/filesystem"
)

// What the machine has, as far as kubelet knows.
const (
	processors  = 128
	memoryBytes = 1 << 40
)

func main() {
	if err := run(genericapiserver.SetupSignalContext(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "kubelet:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 5 {
		return errors.New("usage: kubelet CONFIG KUBECONFIG ROOT NODE ADDRESS")
	}
	loader, err := configfiles.NewFsLoader(&utilfs.DefaultFs{}, args[0])
	if err != nil {
		return err
	}
	config, err := loader.Load(ctx)
	if err != nil {
		return err
	}
	flags := options.NewKubeletFlags()
	flags.KubeConfig, flags.RootDirectory, flags.HostnameOverride, flags.NodeIP = args[1], args[2], args[3], args[4]
	server := &options.KubeletServer{KubeletFlags: *flags, KubeletConfiguration: *config}

	gates := utilfeature.DefaultMutableFeatureGate
	if err := gates.SetFromMap(config.FeatureGates); err != nil {
		return err
	}
	logs.InitLogs()
	if err := logsapi.ValidateAndApply(&config.Logging, gates); err != nil {
		return err
	}
	deps, err := app.UnsecuredDependencies(ctx, server, gates)
	if err != nil {
		return err
	}
	endpoint := config.ContainerRuntimeEndpoint
	machine, err := cadvisor.New(klog.FromContext(ctx), cadvisor.NewImageFsInfoProvider(endpoint), flags.RootDirectory,
		[]string{"/"}, cadvisor.UsingLegacyCadvisorStats(endpoint), config.LocalStorageCapacityIsolation)
	if err != nil {
		return err
	}
	deps.CAdvisorInterface = largeServer{machine}
	return app.Run(ctx, server, deps, gates)
}

// largeServer is this machine with more processors and memory.
type largeServer struct{ cadvisor.Interface }

// MachineInfo is what kubelet reports about the machine.
func (l largeServer) MachineInfo() (*cadvisorapi.MachineInfo, error) {
	info, err := l.Interface.MachineInfo()
	if err != nil {
		return nil, err
	}
	large := *info
	large.NumCores, large.MemoryCapacity = processors, memoryBytes
	return &large, nil
}
