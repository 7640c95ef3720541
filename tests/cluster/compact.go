package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	etcd "go.etcd.io/etcd/client/v3"
)

// runCompact throws away all history of etcd up to now, and prints the revision that is left.
func runCompact(arguments []string) error {
	flags := flag.NewFlagSet("compact", flag.ContinueOnError)
	at := flags.String("etcd", "", "the URL of etcd")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	client, err := etcd.New(etcd.Config{Endpoints: []string{*at}, DialTimeout: 5 * time.Second})
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
