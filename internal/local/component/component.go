// Package component is the parts of a local cluster: etcd, kube-apiserver,
// kube-controller-manager, the schedulers and the manager, each of which the
// playground's binary can be. It is apart from package local because it links all of
// Kubernetes.
package component

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	kubescheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"

	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/internal/manager"
	"github.com/daybreak-gpu/daybreak/internal/scheduler"
)

// Run runs the part of the cluster that the arguments name, if they name
// one, and returns its exit code.
func Run(args []string) (code int, ok bool) {
	if len(args) < 2 {
		return 0, false
	}
	var command *cobra.Command
	switch args[1] {
	case local.ComponentEtcd:
		if err := runEtcd(args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "etcd:", err)
			return 1, true
		}
		return 0, true
	case local.ComponentAPIServer:
		command = apiserver.NewAPIServerCommand()
	case local.ComponentControllerManager:
		command = controllermanager.NewControllerManagerCommand()
	case local.ComponentScheduler:
		command = scheduler.NewCommand()
	case local.ComponentManager:
		command = manager.NewCommand()
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		command.SetContext(ctx)
	case local.ComponentPlainScheduler:
		command = kubescheduler.NewSchedulerCommand()
	default:
		return 0, false
	}
	command.SetArgs(args[2:])
	return cli.Run(command), true
}

// runEtcd runs a single etcd member: its folder, client port and peer port are
// the arguments. It does not sync to disk: a playground need not survive the
// loss of power.
func runEtcd(args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("want FOLDER CLIENT-PORT PEER-PORT, got %q", args)
	}
	e, err := embed.StartEtcd(etcdConfig(args[0], args[1], args[2]))
	if err != nil {
		return err
	}
	defer e.Close()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, os.Interrupt)
	select {
	case <-e.Server.ReadyNotify():
	case <-time.After(time.Minute):
		return errors.New("not ready after a minute")
	}
	select {
	case <-stop:
		return nil
	case err := <-e.Err():
		return err
	}
}

func etcdConfig(dir, clientPort, peerPort string) *embed.Config {
	cfg := embed.NewConfig()
	cfg.Dir = dir
	cfg.UnsafeNoFsync = true
	cfg.LogLevel = "warn"
	// Only etcd's own command line sets this default: zero logs every request.
	cfg.WarningUnaryRequestDuration = embed.DefaultWarningUnaryRequestDuration
	client, peer := loopback(clientPort), loopback(peerPort)
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = client, client
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = peer, peer
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	// An API server under test may be slow for long; keep a few hours' history.
	cfg.AutoCompactionMode, cfg.AutoCompactionRetention = "periodic", "1h"
	cfg.QuotaBackendBytes = 4 << 30
	return cfg
}

func loopback(port string) []url.URL {
	return []url.URL{{Scheme: "http", Host: "127.0.0.1:" + port}}
}
