//go:build tools

// Package controllers pins the controllers of jobs for the end-to-end tests.
package controllers

import (
	_ "sigs.k8s.io/jobset"
	_ "sigs.k8s.io/lws/cmd"
)
