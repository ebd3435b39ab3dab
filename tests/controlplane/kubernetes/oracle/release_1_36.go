//go:build kubernetes1.36

package main

import (
	"context"

	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/resourceslice/tracker"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

// nominated returns what PostFilter of DefaultPreemption says when it nominates a node: nothing before 1.37.
func nominated(string, int) string { return "" }

// mutable returns the option for a snapshot that preemption may change, which came with 1.37.
func mutable(*cache.Snapshot) []frameworkruntime.Option { return nil }

// deviceTaintRule has no effect before 1.37: its feature gate is off.
type deviceTaintRule = resourcev1beta2.DeviceTaintRule

// trackSlices starts the cache of ResourceSlices.
func trackSlices(ctx context.Context, client kubernetes.Interface, factory informers.SharedInformerFactory) (*tracker.Tracker, error) {
	return tracker.StartTracker(ctx, tracker.Options{
		SliceInformer: factory.Resource().V1().ResourceSlices(),
		KubeClient:    client,
	})
}
