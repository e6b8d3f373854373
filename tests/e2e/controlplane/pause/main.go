// The first process of every pod: it does nothing until it is told to end.
// It stands in for registry.k8s.io/pause, since no image can be pulled here.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGINT, syscall.SIGTERM)
	<-asked
}
