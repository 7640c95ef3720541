package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	etcd "go.etcd.io/etcd/client/v3"
)

// How many objects are put at once, and how long a line may be that tells of one: etcd takes no larger value.
const (
	putters = 64
	lineMax = 1536 << 10
)

// reached is a client of the etcd that the arguments name.
func reached(part string, arguments []string) (*etcd.Client, error) {
	flags := flag.NewFlagSet(part, flag.ContinueOnError)
	at := flags.String("etcd", "", "the URL of etcd")
	if err := flags.Parse(arguments); err != nil {
		return nil, err
	}
	return etcd.New(etcd.Config{Endpoints: []string{*at}, DialTimeout: 5 * time.Second})
}

// runCompact throws away all history of etcd up to now, and prints the revision that is left.
func runCompact(arguments []string) error {
	client, err := reached("compact", arguments)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	now, err := client.Get(ctx, "/")
	if err != nil {
		return err
	}
	if _, err := client.Compact(ctx, now.Header.Revision, etcd.WithCompactPhysical()); err != nil {
		return err
	}
	fmt.Println(now.Header.Revision)
	return nil
}

// runPut puts objects where the API server keeps its own. Each line of stdin is a key, a tab and an object in JSON.
//
// There are no transactions of several objects: all of one would have the same resourceVersion, which the API server's
// objects never have.
func runPut(arguments []string) error {
	client, err := reached("put", arguments)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	ctx, fail := context.WithCancelCause(context.Background())
	defer fail(nil)
	lines := make(chan string, putters)
	var all sync.WaitGroup
	for range putters {
		all.Go(func() {
			for line := range lines {
				if err := put(ctx, client, line); err != nil {
					fail(err)
				}
			}
		})
	}
	scanner := bufio.NewScanner(os.Stdin)
	scanner.Buffer(nil, lineMax)
	for scanner.Scan() && ctx.Err() == nil {
		lines <- scanner.Text()
	}
	if err := scanner.Err(); err != nil {
		fail(err)
	}
	close(lines)
	all.Wait()
	return context.Cause(ctx)
}

func put(ctx context.Context, client *etcd.Client, line string) error {
	key, object, found := strings.Cut(line, "\t")
	if !found {
		return fmt.Errorf("no tab in %q", line)
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	_, err := client.Put(ctx, key, object)
	return err
}
