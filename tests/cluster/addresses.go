package main

import (
	"fmt"
	"sync"
)

// addresses of 10.244.0.0/16, each given again only after all others, as the address managers of clusters do.
type addresses struct {
	lock  sync.Mutex
	taken map[int]bool
	last  int
}

// Below are the addresses of the node and of what tests start themselves.
const firstAddress = 256

func (a *addresses) take() string {
	a.lock.Lock()
	defer a.lock.Unlock()
	if a.taken == nil {
		a.taken, a.last = map[int]bool{}, firstAddress-1
	}
	for {
		a.last++
		if a.last == 65535 {
			a.last = firstAddress
		}
		if !a.taken[a.last] {
			a.taken[a.last] = true
			return fmt.Sprintf("10.244.%d.%d", a.last/256, a.last%256)
		}
	}
}

func (a *addresses) give(address string) {
	var high, low int
	_, _ = fmt.Sscanf(address, "10.244.%d.%d", &high, &low)
	a.lock.Lock()
	defer a.lock.Unlock()
	delete(a.taken, high*256+low)
}
