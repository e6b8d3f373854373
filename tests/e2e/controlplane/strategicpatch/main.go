// Command strategicpatch says what Kubernetes' own library makes of strategic merge
// patches: cases as JSON on stdin, the same cases with their results on stdout.
//
// A case has a kind, an original and a patch; or an original and a modified object, of
// which the library first computes the patch, as kubectl does.
package main

import (
	"encoding/json"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

type patchCase struct {
	Name     string          `json:"name"`
	Kind     string          `json:"kind"`
	Original json.RawMessage `json:"original"`
	Modified json.RawMessage `json:"modified,omitempty"`
	Patch    json.RawMessage `json:"patch,omitempty"`
	Result   json.RawMessage `json:"result,omitempty"`
	Error    string          `json:"error,omitempty"`
}

var types = map[string]any{
	"Pod":            corev1.Pod{},
	"Node":           corev1.Node{},
	"ConfigMap":      corev1.ConfigMap{},
	"ServiceAccount": corev1.ServiceAccount{},
	"Deployment":     appsv1.Deployment{},
}

func main() {
	var cases []patchCase
	if err := json.NewDecoder(os.Stdin).Decode(&cases); err != nil {
		panic(err)
	}
	for i := range cases {
		run(&cases[i])
	}
	if err := json.NewEncoder(os.Stdout).Encode(cases); err != nil {
		panic(err)
	}
}

func run(c *patchCase) {
	if c.Modified != nil {
		patch, err := strategicpatch.CreateTwoWayMergePatch(c.Original, c.Modified, types[c.Kind])
		if err != nil {
			c.Error = err.Error()
			return
		}
		c.Patch = patch
	}
	result, err := strategicpatch.StrategicMergePatch(c.Original, c.Patch, types[c.Kind])
	if err != nil {
		c.Error = err.Error()
		return
	}
	c.Result = result
}
