// Proxy is Kubernetes' kube-proxy, with all of its flags. It is built from here
// so that the module knows what it needs.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-proxy/app"
)

func main() { os.Exit(cli.Run(app.NewProxyCommand())) }
