//go:build tools

// Package kuberay pins KubeRay's operator for the end-to-end tests.
package kuberay

import _ "github.com/ray-project/kuberay/ray-operator"
