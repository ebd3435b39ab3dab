//go:build tools

// Package tools names kwok, so that `go mod tidy` keeps its modules.
package tools

import _ "sigs.k8s.io/kwok/cmd/kwok"
