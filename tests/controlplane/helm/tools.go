//go:build tools

// Package tools names helm, so that `go mod tidy` keeps its modules.
package tools

import _ "helm.sh/helm/v3/cmd/helm"
