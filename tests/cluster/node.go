package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// The one node, which takes every pod.
const nodeName = "node"

// Where the node itself is, in the network of the pods.
const nodeAddress = "10.244.0.1"

// How long a call of the API server may take.
const callTime = 5 * time.Second

// How often a pod that is not ready yet is probed: sooner than any kubelet, so that tests do not wait.
const startPeriod = 20 * time.Millisecond

// node stands in for scheduler and kubelets. It binds each pod to itself, runs it as a process of this binary with an
// address of its own, and tells its status. A pod is its first container; images and volumes mean nothing here, but for those
// images that stand for programs, see [sandboxes].
type node struct {
	client    kubernetes.Interface
	program   string
	addresses addresses
	sandboxes sandboxes

	lock sync.Mutex
	// How each pod that runs is told to end, and within what time.
	ends map[types.UID]chan time.Duration
	// What the pods in sandboxes have said, by namespace/name.
	logs map[string]*podLog
}

func runNode(arguments []string) error {
	flags := flag.NewFlagSet("node", flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "how the API server is reached")
	programs := images{}
	flags.Func("image", "NAME=PROGRAM: pods of this image run this static program in a sandbox", func(text string) error {
		name, program, found := strings.Cut(text, "=")
		if !found {
			return fmt.Errorf("no = in %q", text)
		}
		programs[name] = program
		return nil
	})
	bridge := flags.String("bridge", "", "the bridge that sandboxes are joined to, which has the address "+nodeAddress)
	folder := flags.String("folder", os.TempDir(), "where the root folders of sandboxes are, on the file system of their programs")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	n := &node{
		client: client, program: program,
		sandboxes: sandboxes{images: programs, bridge: *bridge, folder: *folder},
		ends:      map[types.UID]chan time.Duration{}, logs: map[string]*podLog{},
	}
	failed := make(chan error, 1)
	if len(programs) > 0 {
		go func() { failed <- n.serveLogs() }()
	}
	insist(func(ctx context.Context) error { return n.register(ctx) })
	pods := informers.NewSharedInformerFactory(client, 0).Core().V1().Pods().Informer()
	if _, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { n.see(object.(*v1.Pod)) },
		UpdateFunc: func(_, object any) { n.see(object.(*v1.Pod)) },
		DeleteFunc: func(object any) { n.gone(object) },
	}); err != nil {
		return err
	}
	go pods.Run(context.Background().Done())
	return <-failed
}

func (n *node) register(ctx context.Context) error {
	object := &v1.Node{
		ObjectMeta: meta.ObjectMeta{Name: nodeName, Labels: map[string]string{"kubernetes.io/hostname": nodeName}},
		Status: v1.NodeStatus{
			Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "StandIn"}},
			Addresses:  []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: nodeAddress}},
		},
	}
	_, err := n.client.CoreV1().Nodes().Create(ctx, object, meta.CreateOptions{})
	if errors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// see takes a pod as it is now: binds it, starts it, or tells it to end.
func (n *node) see(pod *v1.Pod) {
	if pod.Spec.NodeName == "" {
		// Seen again before it is bound, it is bound again, which the API server refuses.
		go n.bind(pod)
		return
	}
	n.lock.Lock()
	defer n.lock.Unlock()
	end := n.ends[pod.UID]
	if end == nil {
		end = make(chan time.Duration, 1)
		n.ends[pod.UID] = end
		go n.run(pod, end)
	}
	if pod.DeletionTimestamp != nil {
		tell(end, time.Duration(*pod.DeletionGracePeriodSeconds)*time.Second)
	}
}

// gone is the end of a pod that somebody has removed without a grace period.
func (n *node) gone(object any) {
	if tombstone, unknown := object.(cache.DeletedFinalStateUnknown); unknown {
		object = tombstone.Obj
	}
	n.lock.Lock()
	defer n.lock.Unlock()
	uid := object.(*v1.Pod).UID
	if end := n.ends[uid]; end != nil {
		tell(end, 0)
	}
	// Not earlier: an event from before its removal would start it again.
	delete(n.ends, uid)
}

// tell replaces what was told before and has not been heard.
func tell(end chan time.Duration, grace time.Duration) {
	select {
	case <-end:
	default:
	}
	end <- grace
}

func (n *node) bind(pod *v1.Pod) {
	binding := &v1.Binding{
		ObjectMeta: meta.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     v1.ObjectReference{Kind: "Node", Name: nodeName},
	}
	insist(func(ctx context.Context) error {
		return n.client.CoreV1().Pods(pod.Namespace).Bind(ctx, binding, meta.CreateOptions{})
	})
}

// run is one pod from its start to its removal.
func (n *node) run(pod *v1.Pod, end <-chan time.Duration) {
	address := n.addresses.take()
	defer n.addresses.give(address)
	log := n.keepLog(pod)
	defer n.dropLog(pod)
	restarts := int32(0)
	exited := n.start(pod, address, log)
	ready := n.ready(pod, address, exited)
	n.report(pod, address, ready, restarts)
	probe := time.NewTimer(startPeriod)
	var killed <-chan time.Time
	var ending bool
	for {
		select {
		case grace := <-end:
			if ending && grace > 0 {
				continue
			}
			ending = true
			signal := syscall.SIGTERM
			if grace <= 0 {
				signal = syscall.SIGKILL
			}
			if exited == nil {
				n.remove(pod)
				return
			}
			_ = exited.process.Signal(signal)
			killed = time.After(grace)
		case <-killed:
			_ = exited.process.Kill()
		case <-exited.done():
			if ending {
				n.remove(pod)
				return
			}
			exited, ready = nil, false
			restarts++
			n.report(pod, address, ready, restarts)
			probe.Reset(time.Second)
		case <-probe.C:
			if exited == nil {
				exited = n.start(pod, address, log)
			}
			if now := n.ready(pod, address, exited); now != ready {
				ready = now
				n.report(pod, address, ready, restarts)
			}
			probe.Reset(period(pod, ready))
		}
	}
}

// running is a pod's process while it runs.
type running struct {
	process *os.Process
	ended   chan struct{}
	// The sockets that a sandbox had when it was last looked at; negative outside of one, and when they are known to be all.
	sockets int
}

// settled is whether all sockets are open.
func (r *running) settled() bool {
	if r.sockets < 0 {
		return true
	}
	before := r.sockets
	r.sockets = sockets(r.process.Pid)
	if r.sockets > 0 && r.sockets == before {
		r.sockets = -1
	}
	return r.sockets < 0
}

func (r *running) done() <-chan struct{} {
	if r == nil {
		return nil
	}
	return r.ended
}

// start runs the program of the pod's image in a sandbox, or else this binary as the pod. It returns nil where that fails,
// as it does while a volume is missing.
func (n *node) start(pod *v1.Pod, address string, log *podLog) *running {
	program := n.sandboxes.images.of(&pod.Spec.Containers[0])
	if program == "" {
		command := n.server(pod, address)
		return follow(pod, command, command.Start(), -1)
	}
	command, err := n.sandboxes.start(n, pod, program, address, log)
	if errors.IsNotFound(err) {
		return nil
	}
	return follow(pod, command, err, 0)
}

// server is this binary as the pod. The container's arguments are flags of the pod's server.
func (n *node) server(pod *v1.Pod, address string) *exec.Cmd {
	container := pod.Spec.Containers[0]
	arguments := []string{"pod", "--name", pod.Name}
	for _, port := range container.Ports {
		arguments = append(arguments, "--listen", fmt.Sprintf("%s:%d", address, port.ContainerPort))
	}
	command := exec.Command(n.program, append(arguments, container.Args...)...)
	command.Stderr = os.Stderr
	return command
}

// follow is a command that has been started, or nil where that has failed.
func follow(pod *v1.Pod, command *exec.Cmd, err error, sockets int) *running {
	if err != nil {
		fmt.Fprintf(os.Stderr, "pod %s/%s: %v\n", pod.Namespace, pod.Name, err)
		return nil
	}
	ended := make(chan struct{})
	go func() {
		_ = command.Wait()
		close(ended)
	}()
	return &running{command.Process, ended, sockets}
}

// ready asks the readiness probe. Like a kubelet, it takes a pod without one for ready as soon as it has started; one in a
// sandbox as soon as it listens, and has opened no further socket since it was last looked at.
func (n *node) ready(pod *v1.Pod, address string, exited *running) bool {
	container := pod.Spec.Containers[0]
	probe := container.ReadinessProbe
	if probe == nil || probe.HTTPGet == nil {
		return exited != nil && exited.settled()
	}
	port := probe.HTTPGet.Port.IntValue()
	for _, named := range container.Ports {
		if named.Name == probe.HTTPGet.Port.StrVal && port == 0 {
			port = int(named.ContainerPort)
		}
	}
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get(fmt.Sprintf("http://%s:%d/%s", address, port, strings.TrimPrefix(probe.HTTPGet.Path, "/")))
	if err != nil {
		return false
	}
	_ = answer.Body.Close()
	return answer.StatusCode < 400
}

func period(pod *v1.Pod, ready bool) time.Duration {
	probe := pod.Spec.Containers[0].ReadinessProbe
	if !ready {
		return startPeriod
	}
	if probe == nil {
		return time.Second
	}
	return time.Duration(probe.PeriodSeconds) * time.Second
}

// report writes the status that a kubelet would.
func (n *node) report(pod *v1.Pod, address string, ready bool, restarts int32) {
	now := meta.Now()
	truth := map[bool]v1.ConditionStatus{true: v1.ConditionTrue, false: v1.ConditionFalse}
	condition := func(kind v1.PodConditionType, status bool) v1.PodCondition {
		return v1.PodCondition{Type: kind, Status: truth[status], LastTransitionTime: now}
	}
	container := pod.Spec.Containers[0]
	status := v1.PodStatus{
		Phase:  v1.PodRunning,
		HostIP: nodeAddress,
		PodIP:  address,
		PodIPs: []v1.PodIP{{IP: address}},
		Conditions: []v1.PodCondition{
			condition(v1.PodScheduled, true), condition(v1.PodInitialized, true),
			condition(v1.ContainersReady, ready), condition(v1.PodReady, ready),
		},
		StartTime: &now,
		ContainerStatuses: []v1.ContainerStatus{{
			Name: container.Name, Image: container.Image, Ready: ready, RestartCount: restarts,
			State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: now}},
		}},
	}
	// The uid keeps the status off a later pod of the same name.
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		panic(err)
	}
	insist(func(ctx context.Context) error {
		_, err := n.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, meta.PatchOptions{}, "status")
		return err
	})
}

// keepLog is where what a pod says is kept, across restarts of its container, as long as it runs.
func (n *node) keepLog(pod *v1.Pod) *podLog {
	n.lock.Lock()
	defer n.lock.Unlock()
	log := &podLog{}
	n.logs[pod.Namespace+"/"+pod.Name] = log
	return log
}

func (n *node) dropLog(pod *v1.Pod) {
	n.lock.Lock()
	defer n.lock.Unlock()
	delete(n.logs, pod.Namespace+"/"+pod.Name)
}

// remove takes the pod's object away, which is the kubelet's last word about it.
func (n *node) remove(pod *v1.Pod) {
	now := int64(0)
	options := meta.DeleteOptions{GracePeriodSeconds: &now, Preconditions: meta.NewUIDPreconditions(string(pod.UID))}
	insist(func(ctx context.Context) error {
		return n.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, options)
	})
}

// insist tries until the API server has taken it, or has refused it for good.
func insist(try func(context.Context) error) {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), callTime)
		err := try(ctx)
		cancel()
		if err == nil || errors.IsNotFound(err) || errors.IsConflict(err) || errors.IsInvalid(err) {
			return
		}
		fmt.Fprintln(os.Stderr, err)
		time.Sleep(50 * time.Millisecond)
	}
}
