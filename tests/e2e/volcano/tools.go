//go:build tools

// Package volcano pins Volcano's scheduler for the end-to-end tests.
package volcano

import _ "volcano.sh/volcano/cmd/scheduler"
