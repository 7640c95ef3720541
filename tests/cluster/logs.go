package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// How many lines of a pod are kept at most; the older half goes when there are more.
const linesMax = 20000

// podLog keeps what a pod has said, with the time of each line.
type podLog struct {
	lock  sync.Mutex
	lines []line
	rest  []byte
}

type line struct {
	at   time.Time
	text string
}

// Write takes output of the pod, in pieces of any size.
func (l *podLog) Write(piece []byte) (int, error) {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.rest = append(l.rest, piece...)
	for {
		text, rest, whole := strings.Cut(string(l.rest), "\n")
		if !whole {
			return len(piece), nil
		}
		l.lines = append(l.lines, line{time.Now(), text})
		l.rest = []byte(rest)
		if len(l.lines) > linesMax {
			l.lines = append([]line(nil), l.lines[linesMax/2:]...)
		}
	}
}

// read answers a request for logs with the options that it knows. It tells what there is and does not follow.
func (l *podLog) read(options url.Values) string {
	l.lock.Lock()
	defer l.lock.Unlock()
	var since time.Time
	if seconds, err := strconv.Atoi(options.Get("sinceSeconds")); err == nil {
		since = time.Now().Add(-time.Duration(seconds) * time.Second)
	}
	if at, err := time.Parse(time.RFC3339, options.Get("sinceTime")); err == nil {
		since = at
	}
	var told []line
	for _, line := range l.lines {
		if !line.at.Before(since) {
			told = append(told, line)
		}
	}
	if tail, err := strconv.Atoi(options.Get("tailLines")); err == nil && tail >= 0 && tail < len(told) {
		told = told[len(told)-tail:]
	}
	var text strings.Builder
	for _, line := range told {
		if options.Get("timestamps") == "true" {
			text.WriteString(line.at.UTC().Format(time.RFC3339Nano) + " ")
		}
		text.WriteString(line.text + "\n")
	}
	return text.String()
}

// serveLogs is the part of a kubelet that the API server asks for the logs of pods.
func (n *node) serveLogs() error {
	certificate, err := selfSigned()
	if err != nil {
		return err
	}
	routes := http.NewServeMux()
	routes.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", func(answer http.ResponseWriter, request *http.Request) {
		n.lock.Lock()
		log := n.logs[request.PathValue("namespace")+"/"+request.PathValue("pod")]
		n.lock.Unlock()
		if log == nil {
			http.Error(answer, "no such pod runs in a sandbox here", http.StatusNotFound)
			return
		}
		answer.Header().Set("Content-Type", "text/plain")
		_, _ = answer.Write([]byte(log.read(request.URL.Query())))
	})
	server := http.Server{
		Addr:      nodeAddress + ":10250",
		Handler:   routes,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}},
	}
	return server.ListenAndServeTLS("", "")
}

// selfSigned is a certificate that no one verifies: the API server is told of no authority for kubelets.
func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
