//go:build !kubernetes1.36

package main

import (
	"fmt"

	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

// nominated returns what PostFilter of DefaultPreemption says when it nominates a node.
func nominated(node string, victims int) string {
	return fmt.Sprintf("preemption: found a potential placement for pod on node %v, preempting %d victims", node, victims)
}

// mutable returns the option for a snapshot that preemption may change.
func mutable(snapshot *cache.Snapshot) []frameworkruntime.Option {
	return []frameworkruntime.Option{frameworkruntime.WithMutableSnapshotLister(snapshot)}
}
