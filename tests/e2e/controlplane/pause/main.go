// The first process of every pod: it does nothing until it is told to end.
// It stands in for registry.k8s.io/pause, since no image can be pulled here, and like
// that one it says its version and ends when it is called with -v.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "-v" {
		fmt.Println("pause, a stand-in")
		return
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGINT, syscall.SIGTERM)
	<-asked
}
