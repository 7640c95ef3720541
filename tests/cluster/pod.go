package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// runPod is the program of every pod: an HTTP server that says which pod answers, and ends at SIGTERM as a well-behaved
// one does. Its flags are the container's arguments.
func runPod(arguments []string) error {
	flags := flag.NewFlagSet("pod", flag.ContinueOnError)
	name := flags.String("name", "", "the pod's name")
	say := flags.String("say", "", "the body of every answer [default: the pod's name]")
	startDelay := flags.Duration("start-delay", 0, "how long it takes until it listens")
	delay := flags.Duration("delay", 0, "how long every answer takes; ?delay= in a query asks for more")
	linger := flags.Duration("linger", 0, "how long it goes on after SIGTERM as if nothing had been said")
	var listen []string
	flags.Func("listen", "the address to listen on; repeatable", func(text string) error {
		listen = append(listen, text)
		return nil
	})
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if *say == "" {
		*say = *name
	}
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	time.Sleep(*startDelay)

	server := http.Server{Handler: http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		if request.URL.Path != "/ready" {
			more, _ := time.ParseDuration(request.URL.Query().Get("delay"))
			time.Sleep(*delay + more)
		}
		local := request.Context().Value(http.LocalAddrContextKey).(net.Addr)
		answer.Header().Set("pod", *name)
		answer.Header().Set("pod-address", local.String())
		_, _ = fmt.Fprint(answer, *say)
	})}
	failed := make(chan error, len(listen))
	for _, at := range listen {
		socket, err := net.Listen("tcp", at)
		if err != nil {
			return err
		}
		go func() { failed <- server.Serve(socket) }()
	}
	select {
	case err := <-failed:
		return err
	case <-term:
	}
	time.Sleep(*linger)
	// Sockets and idle connections close at once; what is in flight is finished.
	if err := server.Shutdown(context.Background()); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
