package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"

	v1 "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// images are static programs by the name of the image that they stand for, without its tag.
type images map[string]string

// of is the program of a container, and "" where nobody has given one for its image.
func (i images) of(container *v1.Container) string {
	name := container.Image
	if colon := strings.LastIndexByte(name, ':'); colon > strings.LastIndexByte(name, '/') {
		name = name[:colon]
	}
	return i[name]
}

// sandboxes run containers in root folders and network namespaces of their own, so that a program that listens on all
// addresses listens on those of its pod alone. The namespaces end with their process.
type sandboxes struct {
	images images
	bridge string
	folder string
	// The names of network devices are used once: the kernel removes those of an ended process when it has time.
	devices atomic.Uint64
}

// start runs a pod's first container. Its environment is what the manifest says and nothing else.
func (s *sandboxes) start(n *node, pod *v1.Pod, program, address string, log *podLog) (*exec.Cmd, error) {
	container := &pod.Spec.Containers[0]
	root := filepath.Join(s.folder, string(pod.UID))
	if err := os.RemoveAll(root); err != nil {
		return nil, err
	}
	if err := n.mount(pod, container, root); err != nil {
		return nil, err
	}
	if err := os.Link(program, filepath.Join(root, "program")); err != nil {
		return nil, err
	}
	command := &exec.Cmd{
		Path:        "/program",
		Args:        append([]string{"/program"}, container.Args...),
		Env:         environment(pod, container),
		Dir:         "/",
		Stdout:      log,
		Stderr:      log,
		SysProcAttr: &syscall.SysProcAttr{Chroot: root, Cloneflags: syscall.CLONE_NEWNET},
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	if err := s.connect(command.Process.Pid, address); err != nil {
		_ = command.Process.Kill()
		_ = command.Wait()
		return nil, err
	}
	return command, nil
}

// connect joins the network namespace of a process to the bridge, with this address.
func (s *sandboxes) connect(process int, address string) error {
	device := fmt.Sprintf("pod%d", s.devices.Add(1))
	var octets [4]byte
	if _, err := fmt.Sscanf(address, "%d.%d.%d.%d", &octets[0], &octets[1], &octets[2], &octets[3]); err != nil {
		return err
	}
	// A restarted container has the same address, which neighbours must still find.
	hardware := fmt.Sprintf("02:00:%02x:%02x:%02x:%02x", octets[0], octets[1], octets[2], octets[3])
	outside := fmt.Sprintf("link add %s type veth peer name eth0 address %s netns %d\nlink set %s master %s up\n",
		device, hardware, process, device, s.bridge)
	inside := fmt.Sprintf("link set lo up\naddr add %s/16 dev eth0\nlink set eth0 up\nroute add default via %s\n",
		address, nodeAddress)
	if err := feed(exec.Command("ip", "-batch", "-"), outside); err != nil {
		return err
	}
	return feed(exec.Command("nsenter", "--net", "--target", fmt.Sprint(process), "ip", "-batch", "-"), inside)
}

func feed(command *exec.Cmd, input string) error {
	command.Stdin = strings.NewReader(input)
	if said, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(command.Args, " "), err, said)
	}
	return nil
}

// environment is what the container's manifest sets. Of fields of the pod it may name name, namespace and address.
func environment(pod *v1.Pod, container *v1.Container) []string {
	var all []string
	for _, variable := range container.Env {
		value := variable.Value
		if from := variable.ValueFrom; from != nil && from.FieldRef != nil {
			switch from.FieldRef.FieldPath {
			case "metadata.name":
				value = pod.Name
			case "metadata.namespace":
				value = pod.Namespace
			}
		}
		all = append(all, variable.Name+"="+value)
	}
	return all
}

// mount writes the Secrets and ConfigMaps that the container mounts into its root folder, as they are now. It fails while one
// of them is missing.
func (n *node) mount(pod *v1.Pod, container *v1.Container, root string) error {
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	volumes := map[string]v1.Volume{}
	for _, volume := range pod.Spec.Volumes {
		volumes[volume.Name] = volume
	}
	for _, mount := range container.VolumeMounts {
		files, items, err := n.contents(pod.Namespace, volumes[mount.Name])
		if err != nil {
			return err
		}
		if len(items) == 0 {
			for key := range files {
				items = append(items, v1.KeyToPath{Key: key, Path: key})
			}
		}
		for _, item := range items {
			path := filepath.Join(root, filepath.Clean("/"+mount.MountPath), filepath.Clean("/"+item.Path))
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(path, files[item.Key], 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}

// contents are the files of a volume by key, and the paths that some of them are to have.
func (n *node) contents(namespace string, volume v1.Volume) (map[string][]byte, []v1.KeyToPath, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	switch {
	case volume.Secret != nil:
		secret, err := n.client.CoreV1().Secrets(namespace).Get(ctx, volume.Secret.SecretName, meta.GetOptions{})
		if err != nil {
			return nil, nil, err
		}
		return secret.Data, volume.Secret.Items, nil
	case volume.ConfigMap != nil:
		object, err := n.client.CoreV1().ConfigMaps(namespace).Get(ctx, volume.ConfigMap.Name, meta.GetOptions{})
		if err != nil {
			return nil, nil, err
		}
		files := map[string][]byte{}
		for key, text := range object.Data {
			files[key] = []byte(text)
		}
		return files, volume.ConfigMap.Items, nil
	default:
		return nil, nil, fmt.Errorf("volume %q is neither a Secret nor a ConfigMap", volume.Name)
	}
}

// sockets counts what a process's network namespace listens on.
func sockets(process int) int {
	count := 0
	for _, protocol := range []string{"tcp", "tcp6", "udp", "udp6"} {
		file, err := os.Open(fmt.Sprintf("/proc/%d/net/%s", process, protocol))
		if err != nil {
			continue
		}
		lines := bufio.NewScanner(file)
		lines.Scan() // The head of the table.
		for lines.Scan() {
			fields := strings.Fields(lines.Text())
			// The fourth field is the state of a socket, of which 0A is LISTEN; sockets of UDP have no such state.
			if len(fields) > 3 && (fields[3] == "0A" || strings.HasPrefix(protocol, "udp")) {
				count++
			}
		}
		_ = file.Close()
	}
	return count
}
