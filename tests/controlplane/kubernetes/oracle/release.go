//go:build !kubernetes1.36

package main

import (
	"context"
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/resourceslice/tracker"
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

// deviceTaintRule is read by the scheduler since 1.37.
type deviceTaintRule = resourcev1.DeviceTaintRule

// trackSlices starts the cache of ResourceSlices with the taints of rules.
func trackSlices(ctx context.Context, client kubernetes.Interface, factory informers.SharedInformerFactory) (*tracker.Tracker, error) {
	return tracker.StartTracker(ctx, tracker.Options{
		EnableDeviceTaintRules: true,
		SliceInformer:          factory.Resource().V1().ResourceSlices(),
		TaintInformer:          factory.Resource().V1().DeviceTaintRules(),
		KubeClient:             client,
	})
}
