package main

import (
	"encoding/json"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Case is one pod against one frozen cluster.
type Case struct {
	Name                   string                         `json:"name"`
	Nodes                  []v1.Node                      `json:"nodes"`
	Pods                   []v1.Pod                       `json:"pods"`
	Pod                    *v1.Pod                        `json:"pod"`
	NominatedPods          []v1.Pod                       `json:"nominatedPods"`
	Namespaces             []v1.Namespace                 `json:"namespaces"`
	Services               []v1.Service                   `json:"services"`
	ReplicationControllers []v1.ReplicationController     `json:"replicationControllers"`
	ReplicaSets            []appsv1.ReplicaSet            `json:"replicaSets"`
	StatefulSets           []appsv1.StatefulSet           `json:"statefulSets"`
	PersistentVolumes      []v1.PersistentVolume          `json:"persistentVolumes"`
	PersistentVolumeClaims []v1.PersistentVolumeClaim     `json:"persistentVolumeClaims"`
	StorageClasses         []storagev1.StorageClass       `json:"storageClasses"`
	CSINodes               []storagev1.CSINode            `json:"csiNodes"`
	CSIDrivers             []storagev1.CSIDriver          `json:"csiDrivers"`
	CSIStorageCapacities   []storagev1.CSIStorageCapacity `json:"csiStorageCapacities"`
	VolumeAttachments      []storagev1.VolumeAttachment   `json:"volumeAttachments"`
	PodDisruptionBudgets   []policyv1.PodDisruptionBudget `json:"podDisruptionBudgets"`
	DeviceClasses          []resourcev1.DeviceClass       `json:"deviceClasses"`
	ResourceSlices         []resourcev1.ResourceSlice     `json:"resourceSlices"`
	ResourceClaims         []resourcev1.ResourceClaim     `json:"resourceClaims"`
	DeviceTaintRules       []deviceTaintRule              `json:"deviceTaintRules"`
	Config                 json.RawMessage                `json:"config"`
	Preempt                bool                           `json:"preempt"`
}

// Answer is a status.
type Answer struct {
	Code    string   `json:"code"`
	Reasons []string `json:"reasons,omitempty"`
	Plugin  string   `json:"plugin,omitempty"`
	Nodes   []string `json:"nodes,omitempty"`
}

// Candidate is a node where preemption would make room.
type Candidate struct {
	Victims       []string `json:"victims"`
	PdbViolations int64    `json:"pdbViolations"`
}

// Preemption is what PostFilter answers.
type Preemption struct {
	Code          string               `json:"code"`
	Message       string               `json:"message"`
	NominatedNode string               `json:"nominatedNode"`
	Victims       []string             `json:"victims"`
	Candidates    map[string]Candidate `json:"candidates"`
	Rejected      map[string]Answer    `json:"rejected"`
	Tied          []string             `json:"tied,omitempty"`
}

// Expected is everything that the plugins answer.
type Expected struct {
	PreFilter    map[string]Answer            `json:"preFilter"`
	Filter       map[string]map[string]Answer `json:"filter"`
	NodeStatus   map[string]Answer            `json:"nodeStatus"`
	Feasible     []string                     `json:"feasible"`
	Weights      map[string]int32             `json:"weights"`
	PreScore     map[string]Answer            `json:"preScore"`
	Raw          map[string][]int64           `json:"raw"`
	Normalized   map[string][]int64           `json:"normalized"`
	Total        []int64                      `json:"total,omitempty"`
	Best         []string                     `json:"best,omitempty"`
	FitError     string                       `json:"fitError,omitempty"`
	FitErrorFull string                       `json:"fitErrorFull,omitempty"`
	Preemption   *Preemption                  `json:"preemption,omitempty"`
	Error        string                       `json:"error,omitempty"`

	// AllocationResults has what the claims without allocation would get: node → claim → result.
	AllocationResults map[string]map[string]*resourcev1.AllocationResult `json:"allocationResults,omitempty"`
}

// objects returns everything that the API server would hold.
func (c *Case) objects() []runtime.Object {
	found := []runtime.Object{c.Pod}
	found = add(found, c.Nodes)
	found = add(found, c.Pods)
	found = add(found, c.NominatedPods)
	found = add(found, c.Namespaces)
	found = add(found, c.Services)
	found = add(found, c.ReplicationControllers)
	found = add(found, c.ReplicaSets)
	found = add(found, c.StatefulSets)
	found = add(found, c.PersistentVolumes)
	found = add(found, c.PersistentVolumeClaims)
	found = add(found, c.StorageClasses)
	found = add(found, c.CSINodes)
	found = add(found, c.CSIDrivers)
	found = add(found, c.CSIStorageCapacities)
	found = add(found, c.VolumeAttachments)
	found = add(found, c.DeviceClasses)
	found = add(found, c.ResourceSlices)
	found = add(found, c.ResourceClaims)
	found = add(found, c.DeviceTaintRules)
	return add(found, c.PodDisruptionBudgets)
}

func add[T any, P interface {
	*T
	runtime.Object
}](found []runtime.Object, more []T) []runtime.Object {
	for i := range more {
		found = append(found, P(&more[i]))
	}
	return found
}

func pointers[T any](of []T) []*T {
	found := make([]*T, len(of))
	for i := range of {
		found[i] = &of[i]
	}
	return found
}
