//go:build kubernetes1.36

package main

import (
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

// nominated returns what PostFilter of DefaultPreemption says when it nominates a node: nothing before 1.37.
func nominated(string, int) string { return "" }

// mutable returns the option for a snapshot that preemption may change, which came with 1.37.
func mutable(*cache.Snapshot) []frameworkruntime.Option { return nil }
