// A Kubernetes control plane in one binary, for tests: etcd, the API server, the controllers, and a stand-in for nodes
// and pods. The first argument says which part of it runs; the rest is that part's own.
package main

import (
	"fmt"
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

func main() {
	if len(os.Args) < 2 {
		fail("which part?")
	}
	part := os.Args[1]
	// Each part finds its own name and arguments where it would as a program of its own.
	os.Args = os.Args[1:]
	var err error
	switch part {
	case "etcd":
		etcdmain.Main(os.Args)
	case "kube-apiserver":
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	case "kube-controller-manager":
		os.Exit(cli.Run(controllers.NewControllerManagerCommand()))
	case "node":
		err = runNode(os.Args[1:])
	case "pod":
		err = runPod(os.Args[1:])
	case "compact":
		err = runCompact(os.Args[1:])
	case "put":
		err = runPut(os.Args[1:])
	default:
		fail(fmt.Sprintf("there is no part %q", part))
	}
	if err != nil {
		fail(fmt.Sprintf("%s: %v", part, err))
	}
}

func fail(why string) {
	fmt.Fprintln(os.Stderr, why)
	os.Exit(1)
}
