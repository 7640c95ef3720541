// Informers of client-go, as controllers in Go use them, over the server that is named. Each line on standard input is answered by
// one line of JSON: the objects that the stores hold, the events that were seen, and whatever contradicted the events before.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

type answer struct {
	Synced  bool             `json:"synced"`
	Objects map[string]any   `json:"objects"`
	Events  map[string]int64 `json:"events"`
	Faults  []string         `json:"faults"`
}

// seen holds each object as the last event showed it, so that an event that does not follow from the ones before is found.
type seen struct {
	lock     sync.Mutex
	versions map[string]string
	events   map[string]int64
	faults   []string
}

func (s *seen) note(event, resource string, object any, gone bool) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if last, unknown := object.(cache.DeletedFinalStateUnknown); unknown {
		object = last.Obj
		event = "lost"
	}
	it, ok := object.(*unstructured.Unstructured)
	if !ok {
		s.faults = append(s.faults, fmt.Sprintf("%s of a %T", event, object))
		return
	}
	key := key(resource, it)
	before, known := s.versions[key]
	if known == (event == "add") {
		s.faults = append(s.faults, fmt.Sprintf("%s of %s, which was there: %t", event, key, known))
	}
	if event == "update" && before == it.GetResourceVersion() {
		event = "resync"
	}
	s.events[event]++
	if gone {
		delete(s.versions, key)
	} else {
		s.versions[key] = it.GetResourceVersion()
	}
}

func key(resource string, object *unstructured.Unstructured) string {
	return resource + " " + object.GetNamespace() + "/" + object.GetName()
}

func main() {
	server := flag.String("server", "", "URL of the API")
	resync := flag.Duration("resync", 0, "how often every object is shown again; 0 is never")
	flag.Parse()
	if err := run(*server, *resync, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A resource is written GROUP/VERSION/PLURAL, or VERSION/PLURAL in the core group.
func resource(text string) (schema.GroupVersionResource, error) {
	parts := strings.Split(text, "/")
	switch len(parts) {
	case 2:
		return schema.GroupVersionResource{Version: parts[0], Resource: parts[1]}, nil
	case 3:
		return schema.GroupVersionResource{Group: parts[0], Version: parts[1], Resource: parts[2]}, nil
	default:
		return schema.GroupVersionResource{}, fmt.Errorf("%q is not a resource", text)
	}
}

func run(server string, resync time.Duration, resources []string) error {
	client, err := dynamic.NewForConfig(&rest.Config{Host: server})
	if err != nil {
		return err
	}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, resync)
	seen := &seen{versions: map[string]string{}, events: map[string]int64{}, faults: []string{}}
	informers := map[string]cache.SharedIndexInformer{}
	for _, text := range resources {
		gvr, err := resource(text)
		if err != nil {
			return err
		}
		informer := factory.ForResource(gvr).Informer()
		name := gvr.Resource
		_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { seen.note("add", name, object, false) },
			UpdateFunc: func(_, object any) { seen.note("update", name, object, false) },
			DeleteFunc: func(object any) { seen.note("delete", name, object, true) },
		})
		if err != nil {
			return err
		}
		informers[name] = informer
	}
	stop := make(chan struct{})
	defer close(stop)
	factory.Start(stop)
	lines := bufio.NewScanner(os.Stdin)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		if err := out.Encode(dump(informers, seen)); err != nil {
			return err
		}
	}
	return lines.Err()
}

func dump(informers map[string]cache.SharedIndexInformer, seen *seen) answer {
	all := answer{Synced: true, Objects: map[string]any{}}
	for name, informer := range informers {
		all.Synced = all.Synced && informer.HasSynced()
		for _, object := range informer.GetStore().List() {
			it := object.(*unstructured.Unstructured)
			all.Objects[key(name, it)] = it.Object
		}
	}
	seen.lock.Lock()
	defer seen.lock.Unlock()
	all.Events = map[string]int64{}
	for event, count := range seen.events {
		all.Events[event] = count
	}
	all.Faults = append([]string{}, seen.faults...)
	return all
}
