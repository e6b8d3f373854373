//go:build tools

// Package trainingoperator pins Kubeflow's training operator for the end-to-end tests.
package trainingoperator

import _ "github.com/kubeflow/training-operator/cmd/training-operator.v1"
