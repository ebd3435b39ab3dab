package main

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/deviceclass/extendedresourcecache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"
)

// devices gives the plugins of kube-scheduler their view of ResourceClaims and devices.
type devices struct {
	fwk.SharedDRAManager
	claims *claims
	synced []cache.InformerSynced
}

func (d *devices) ResourceClaims() fwk.ResourceClaimTracker { return d.claims }

// claims records what Reserve would allocate, instead of storing it.
type claims struct {
	fwk.ResourceClaimTracker
	reserved []*resourcev1.ResourceClaim
}

func (c *claims) SignalClaimPendingAllocation(_ types.UID, claim *resourcev1.ResourceClaim) error {
	c.reserved = append(c.reserved, claim)
	return nil
}

// newDevices registers the caches of devices and claims with the informers.
func newDevices(ctx context.Context, client kubernetes.Interface, factory informers.SharedInformerFactory) (*devices, error) {
	informer := factory.Resource().V1().ResourceClaims().Informer()
	assumed := assumecache.NewAssumeCache(klog.FromContext(ctx), informer, "ResourceClaim", "", nil)
	slices, err := trackSlices(ctx, client, factory)
	if err != nil {
		return nil, err
	}
	manager := dynamicresources.NewDRAManager(ctx, assumed, slices, factory)
	d := &devices{SharedDRAManager: manager, claims: &claims{ResourceClaimTracker: manager.ResourceClaims()}}
	// Registered last, these handlers are synced after those of the manager.
	none := cache.ResourceEventHandlerFuncs{}
	sliceHandler, err := slices.AddEventHandler(none)
	if err != nil {
		return nil, err
	}
	classes := manager.DeviceClassResolver().(*extendedresourcecache.ExtendedResourceCache)
	classHandler, err := factory.Resource().V1().DeviceClasses().Informer().AddEventHandler(classes)
	if err != nil {
		return nil, err
	}
	d.synced = []cache.InformerSynced{
		assumed.AddEventHandler(none).HasSynced, sliceHandler.HasSynced, classHandler.HasSynced,
	}
	return d, nil
}

// wait waits until the caches contain all objects.
func (d *devices) wait() {
	for _, synced := range d.synced {
		for !synced() {
			time.Sleep(time.Millisecond)
		}
	}
}

// allocations returns what the claims of a pod would get on each node that fits: the results by node and claim.
func (r *room) allocations(ctx context.Context, pod *v1.Pod, nodes []fwk.NodeInfo) map[string]map[string]*resourcev1.AllocationResult {
	plugin, ok := r.plugins[names.DynamicResources].(*dynamicresources.DynamicResources)
	if !ok {
		return nil
	}
	found := map[string]map[string]*resourcev1.AllocationResult{}
	for _, node := range nodes {
		state := framework.NewCycleState()
		if _, status := plugin.PreFilter(ctx, state, pod, r.nodes); !status.IsSuccess() {
			return nil
		}
		name := node.Node().Name
		if !plugin.Filter(ctx, state, pod, node).IsSuccess() {
			continue
		}
		r.devices.claims.reserved = nil
		if !plugin.Reserve(ctx, state, pod, name).IsSuccess() {
			continue
		}
		results := map[string]*resourcev1.AllocationResult{}
		for _, claim := range r.devices.claims.reserved {
			// A node that offers all extended resources itself gets an empty allocation of them.
			if len(claim.Status.Allocation.Devices.Results) > 0 {
				results[claim.Name] = withoutShares(claim.Status.Allocation)
			}
		}
		if len(results) > 0 {
			found[name] = results
		}
	}
	return found
}

// withoutShares removes the identities of shares, which are random.
func withoutShares(allocation *resourcev1.AllocationResult) *resourcev1.AllocationResult {
	copied := allocation.DeepCopy()
	for i := range copied.Devices.Results {
		copied.Devices.Results[i].ShareID = nil
	}
	return copied
}
