// Ask an extender which nodes a pod may go to, as kube-scheduler's HTTPExtender does:
// marshal the arguments with encoding/json, post them over a connection that is kept,
// and decode the answer from its body. Prints the milliseconds of each call as JSON.
//
// The types have the fields of k8s.io/kube-scheduler/extender/v1 that are sent, so that
// nothing beyond the standard library is needed. The pod is read from standard input.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"time"
)

type extenderArgs struct {
	Pod       *json.RawMessage
	Nodes     *json.RawMessage
	NodeNames *[]string
}

type extenderFilterResult struct {
	Nodes                      *json.RawMessage
	NodeNames                  *[]string
	FailedNodes                map[string]string
	FailedAndUnresolvableNodes map[string]string
	Error                      string
}

func main() {
	url := flag.String("url", "", "of the extender's filter")
	count := flag.Int("names", 5000, "how many nodes are offered")
	rate := flag.Float64("rate", 50, "calls that are due a second")
	calls := flag.Int("calls", 1000, "how many are made")
	warmUp := flag.Int("warm-up", 50, "calls before them that are not printed")
	flag.Parse()

	var pod json.RawMessage
	if err := json.NewDecoder(os.Stdin).Decode(&pod); err != nil {
		log.Fatalf("pod: %v", err)
	}
	names := make([]string, *count)
	for i := range names {
		names[i] = fmt.Sprintf("node-%05d.cluster.example", i)
	}
	client := &http.Client{Timeout: 30 * time.Second}
	ask := func() { filter(client, *url, &extenderArgs{Pod: &pod, NodeNames: &names}) }
	for range *warmUp {
		ask()
	}
	took := make([]float64, 0, *calls)
	first := time.Now()
	for number := range *calls {
		due := first.Add(time.Duration(float64(number) / *rate * float64(time.Second)))
		if wait := time.Until(due); wait > 0 {
			time.Sleep(wait)
			due = time.Now() // that it slept too long is no fault of the extender
		}
		ask()
		took = append(took, float64(time.Since(due).Microseconds())/1000)
	}
	if err := json.NewEncoder(os.Stdout).Encode(took); err != nil {
		log.Fatal(err)
	}
}

func filter(client *http.Client, url string, args *extenderArgs) {
	body, err := json.Marshal(args)
	if err != nil {
		log.Fatalf("marshal: %v", err)
	}
	request, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		log.Fatalf("request: %v", err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		log.Fatalf("call: %v", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		log.Fatalf("status: expected 200, found %s", response.Status)
	}
	var result extenderFilterResult
	if err := json.NewDecoder(response.Body).Decode(&result); err != nil {
		log.Fatalf("answer: %v", err)
	}
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		log.Fatalf("answer: %v", err)
	}
	if result.Error != "" || result.NodeNames == nil || len(*result.NodeNames) == 0 {
		log.Fatalf("expected nodes that fit, found none: %q", result.Error)
	}
}
