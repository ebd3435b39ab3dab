// Command oracle asks the real plugins of kube-scheduler what they answer to conformance cases.
//
// It reads a JSON list of cases from standard input, and writes a list of what is `expected` of them, in the same
// order. A case is one pod against one frozen cluster; tests/conformance/runner.py names its fields. Nothing is
// scheduled: the extension points are called one after the other, as the scheduling cycle does.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"sort"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	configscheme "k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

const absentConfig = `{"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}`

// draws is how often the choice among candidates is made, to see which of them are equal.
const draws = 64

func main() {
	logs := flag.NewFlagSet("klog", flag.ExitOnError)
	klog.InitFlags(logs)
	_ = logs.Set("logtostderr", "false")
	_ = logs.Set("stderrthreshold", "FATAL")
	klog.SetOutput(discard{})
	metrics.Register()
	var cases []Case
	if err := json.NewDecoder(os.Stdin).Decode(&cases); err != nil {
		fatal(err)
	}
	answers := make([]*Expected, len(cases))
	for i := range cases {
		answer, err := ask(&cases[i])
		if err != nil {
			fatal(fmt.Errorf("%s: %w", cases[i].Name, err))
		}
		answers[i] = answer
	}
	if err := json.NewEncoder(os.Stdout).Encode(answers); err != nil {
		fatal(err)
	}
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// room is the scheduler's state around one case.
type room struct {
	framework framework.Framework
	plugins   map[string]fwk.Plugin
	weights   map[string]int32
	snapshot  *cache.Snapshot
	nodes     []fwk.NodeInfo
	pdbs      []*policyv1.PodDisruptionBudget
	devices   *devices
}

func ask(c *Case) (expected *Expected, err error) {
	// VolumeBinding of 1.37 dereferences the capacity of a CSIStorageCapacity that states none.
	defer func() {
		if problem := recover(); problem != nil {
			expected, err = &Expected{Error: fmt.Sprintf("panic: %v", problem)}, nil
		}
	}()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r, err := build(ctx, c)
	if err != nil {
		return nil, err
	}
	expected = &Expected{
		PreFilter: map[string]Answer{}, Filter: map[string]map[string]Answer{}, NodeStatus: map[string]Answer{},
		PreScore: map[string]Answer{}, Raw: map[string][]int64{}, Normalized: map[string][]int64{},
		Weights: map[string]int32{}, Feasible: []string{},
	}
	r.askEach(ctx, c.Pod, expected)
	return expected, r.cycle(ctx, c, expected)
}

func build(ctx context.Context, c *Case) (*room, error) {
	client := fake.NewSimpleClientset(c.objects()...)
	factory := informers.NewSharedInformerFactory(client, 0)
	profile, err := c.profile()
	if err != nil {
		return nil, err
	}
	devices, err := newDevices(ctx, client, factory)
	if err != nil {
		return nil, err
	}
	r := &room{plugins: map[string]fwk.Plugin{}, weights: map[string]int32{}, devices: devices}
	var bound []*v1.Pod
	for i := range c.Pods {
		if p := &c.Pods[i]; p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed {
			bound = append(bound, p)
		}
	}
	r.snapshot = cache.NewSnapshot(bound, pointers(c.Nodes))
	r.pdbs = pointers(c.PodDisruptionBudgets)
	nominator := &nominator{pods: map[string][]fwk.PodInfo{}}
	for i := range c.NominatedPods {
		info, err := framework.NewPodInfo(&c.NominatedPods[i])
		if err != nil {
			return nil, err
		}
		node := info.Pod.Status.NominatedNodeName
		nominator.pods[node] = append(nominator.pods[node], info)
	}
	options := append(mutable(r.snapshot),
		frameworkruntime.WithClientSet(client),
		frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithSharedDRAManager(devices),
		frameworkruntime.WithSharedCSIManager(nodevolumelimits.NewCSIManager(factory.Storage().V1().CSINodes().Lister())),
		frameworkruntime.WithSnapshotSharedLister(r.snapshot),
		frameworkruntime.WithPodNominator(nominator),
		frameworkruntime.WithEventRecorder(events.NewEventBroadcasterAdapter(client).NewRecorder("oracle")),
		frameworkruntime.WithParallelism(1),
	)
	r.framework, err = frameworkruntime.NewFramework(ctx, r.capturing(), profile, options...)
	if err != nil {
		return nil, err
	}
	for _, plugin := range r.framework.ListPlugins().Score.Enabled {
		r.weights[plugin.Name] = plugin.Weight
	}
	factory.Core().V1().Pods().Informer()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	devices.wait()
	if len(c.PersistentVolumes)+len(c.PersistentVolumeClaims) > 0 {
		// The caches of volumes are filled by handlers, after the informers'.
		time.Sleep(30 * time.Millisecond)
	}
	r.nodes, err = r.snapshot.NodeInfos().List()
	slices.SortFunc(r.nodes, func(a, b fwk.NodeInfo) int {
		if a.Node().Name < b.Node().Name {
			return -1
		}
		return 1
	})
	return r, err
}

// capturing returns the standard plugins; those that a profile makes are kept by name.
func (r *room) capturing() frameworkruntime.Registry {
	registry := plugins.NewInTreeRegistry()
	for name, factory := range registry {
		registry[name] = func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
			plugin, err := factory(ctx, args, handle)
			r.plugins[name] = plugin
			return plugin, err
		}
	}
	return registry
}

// askEach asks each plugin's PreFilter and Filter by itself.
func (r *room) askEach(ctx context.Context, pod *v1.Pod, expected *Expected) {
	for name, plugin := range r.plugins {
		state := framework.NewCycleState()
		if one, ok := plugin.(fwk.PreFilterPlugin); ok {
			result, status := one.PreFilter(ctx, state, pod, r.nodes)
			answer := answered(status)
			if result != nil && !result.AllNodes() {
				answer.Nodes = result.NodeNames.UnsortedList()
				sort.Strings(answer.Nodes)
			}
			expected.PreFilter[name] = answer
			if !status.IsSuccess() {
				continue
			}
		}
		if one, ok := plugin.(fwk.FilterPlugin); ok {
			found := map[string]Answer{}
			for _, node := range r.nodes {
				if status := one.Filter(ctx, state, pod, node); !status.IsSuccess() {
					found[node.Node().Name] = answered(status)
				}
			}
			expected.Filter[name] = found
		}
	}
}

// cycle runs PreFilter to Score together, and PostFilter when nothing fits.
func (r *room) cycle(ctx context.Context, c *Case, expected *Expected) error {
	state := framework.NewCycleState()
	diagnosis := framework.Diagnosis{NodeToStatus: framework.NewDefaultNodeToStatus()}
	result, status, narrowing := r.framework.RunPreFilterPlugins(ctx, state, c.Pod)
	if !status.IsSuccess() {
		if !status.IsRejected() {
			expected.Error = status.Message()
			return nil
		}
		diagnosis.NodeToStatus.SetAbsentNodesStatus(status)
		diagnosis.PreFilterMsg = status.Message()
		return r.refused(ctx, c, state, diagnosis, expected)
	}
	if node, err := r.snapshot.NodeInfos().Get(c.Pod.Status.NominatedNodeName); err == nil && node != nil {
		// A pod's own nominated node is tried first, and alone when it fits; what refuses it stays on record.
		if fits, err := r.filter(ctx, c.Pod, state, node, &diagnosis, expected); fits || err != nil {
			if err != nil {
				expected.Error = err.Error()
				return nil
			}
			return r.scored(ctx, c.Pod, state, []fwk.NodeInfo{node}, expected)
		}
	}
	nodes := r.nodes
	if !result.AllNodes() {
		nodes = nil
		for _, node := range r.nodes {
			if result.NodeNames.Has(node.Node().Name) {
				nodes = append(nodes, node)
			}
		}
		names := narrowing.UnsortedList()
		sort.Strings(names)
		diagnosis.NodeToStatus.SetAbsentNodesStatus(fwk.NewStatus(
			fwk.UnschedulableAndUnresolvable, fmt.Sprintf("node(s) didn't satisfy plugin(s) %v", names)))
	}
	var feasible []fwk.NodeInfo
	for _, node := range nodes {
		fits, err := r.filter(ctx, c.Pod, state, node, &diagnosis, expected)
		if err != nil {
			expected.Error = err.Error()
			return nil
		}
		if fits {
			feasible = append(feasible, node)
		}
	}
	if len(feasible) == 0 {
		return r.refused(ctx, c, state, diagnosis, expected)
	}
	return r.scored(ctx, c.Pod, state, feasible, expected)
}

func (r *room) filter(
	ctx context.Context, pod *v1.Pod, state fwk.CycleState, node fwk.NodeInfo, diagnosis *framework.Diagnosis, expected *Expected,
) (bool, error) {
	name := node.Node().Name
	status := r.framework.RunFilterPluginsWithNominatedPods(ctx, state, pod, node)
	switch {
	case status.IsSuccess():
		expected.Feasible = append(expected.Feasible, name)
		return true, nil
	case status.IsRejected():
		diagnosis.NodeToStatus.Set(name, status)
		expected.NodeStatus[name] = answered(status)
		return false, nil
	default:
		return false, status.AsError()
	}
}

func (r *room) scored(ctx context.Context, pod *v1.Pod, state fwk.CycleState, nodes []fwk.NodeInfo, expected *Expected) error {
	expected.Weights = r.weights
	for name := range r.weights {
		plugin := r.plugins[name].(fwk.ScorePlugin)
		own := state.Clone()
		if one, ok := plugin.(fwk.PreScorePlugin); ok {
			status := one.PreScore(ctx, own, pod, nodes)
			expected.PreScore[name] = answered(status)
			if !status.IsSuccess() {
				continue
			}
		}
		scores := make(fwk.NodeScoreList, len(nodes))
		for i, node := range nodes {
			score, status := plugin.Score(ctx, own, pod, node)
			if !status.IsSuccess() {
				return fmt.Errorf("%s: %s", name, status.Message())
			}
			scores[i] = fwk.NodeScore{Name: node.Node().Name, Score: score}
		}
		expected.Raw[name] = values(scores)
		if extensions := plugin.ScoreExtensions(); extensions != nil {
			if status := extensions.NormalizeScore(ctx, own, pod, scores); !status.IsSuccess() {
				return fmt.Errorf("%s: %s", name, status.Message())
			}
		}
		expected.Normalized[name] = values(scores)
	}
	if status := r.framework.RunPreScorePlugins(ctx, state, pod, nodes); !status.IsSuccess() {
		return fmt.Errorf("PreScore: %s", status.Message())
	}
	totals, status := r.framework.RunScorePlugins(ctx, state, pod, nodes)
	if !status.IsSuccess() {
		// A profile may ask for a plugin's Score without its PreScore.
		expected.Error = status.Message()
		return nil
	}
	expected.AllocationResults = r.allocations(ctx, pod, nodes)
	best := totals[0].TotalScore
	for _, one := range totals {
		expected.Total = append(expected.Total, one.TotalScore)
		best = max(best, one.TotalScore)
	}
	for _, one := range totals {
		if one.TotalScore == best {
			expected.Best = append(expected.Best, one.Name)
		}
	}
	return nil
}

// refused composes the sentence. Where preemption finds candidates, PostFilter is not run: it would carry it out.
func (r *room) refused(ctx context.Context, c *Case, state fwk.CycleState, diagnosis framework.Diagnosis, expected *Expected) error {
	fitError := &framework.FitError{Pod: c.Pod, NumAllNodes: len(r.nodes), Diagnosis: diagnosis}
	expected.FitError = fitError.Error()
	chosen, found, err := r.search(ctx, c.Pod, state, diagnosis)
	if err != nil {
		return err
	}
	if found.NominatedNode == "" {
		_, status := r.framework.RunPostFilterPlugins(ctx, state, c.Pod, diagnosis.NodeToStatus)
		found.Code, found.Message = status.Code().String(), status.Message()
	} else {
		found.Code, found.Message = fwk.Success.String(), nominated(found.NominatedNode, len(chosen))
		for _, victim := range chosen {
			found.Victims = append(found.Victims, victim.Namespace+"/"+victim.Name)
		}
	}
	fitError.Diagnosis.PostFilterMsg = found.Message
	expected.FitErrorFull = fitError.Error()
	if c.Preempt && r.plugins[defaultpreemption.Name] != nil {
		expected.Preemption = found
	}
	return nil
}

func (r *room) search(ctx context.Context, pod *v1.Pod, state fwk.CycleState, diagnosis framework.Diagnosis) ([]*v1.Pod, *Preemption, error) {
	found := &Preemption{Candidates: map[string]Candidate{}, Rejected: map[string]Answer{}, Victims: []string{}}
	plugin, ok := r.plugins[defaultpreemption.Name].(*defaultpreemption.DefaultPreemption)
	if !ok {
		return nil, found, nil
	}
	if one, ok := r.plugins["DynamicResources"].(fwk.PostFilterPlugin); ok {
		// An error there ends PostFilter before preemption is asked.
		if _, status := one.PostFilter(ctx, state, pod, diagnosis.NodeToStatus); status.Code() == fwk.Error {
			return nil, found, nil
		}
	}
	if may, _ := plugin.PodEligibleToPreemptOthers(ctx, pod, diagnosis.NodeToStatus.Get(pod.Status.NominatedNodeName)); !may {
		return nil, found, nil
	}
	potential, err := diagnosis.NodeToStatus.NodesForStatusCode(r.snapshot.NodeInfos(), fwk.Unschedulable)
	if err != nil || len(potential) == 0 {
		return nil, found, err
	}
	candidates, statuses, err := plugin.Evaluator.DryRunPreemption(ctx, state, pod, potential, r.pdbs, 0, int32(len(potential)))
	if err != nil && len(candidates) == 0 {
		return nil, found, nil
	}
	statuses.ForEachExplicitNode(func(name string, status *fwk.Status) { found.Rejected[name] = answered(status) })
	for _, one := range candidates {
		room := Candidate{PdbViolations: one.Victims().NumPDBViolations}
		for _, victim := range one.Victims().Pods {
			room.Victims = append(room.Victims, victim.Namespace+"/"+victim.Name)
		}
		found.Candidates[one.Name()] = room
	}
	if len(candidates) == 0 {
		return nil, found, nil
	}
	var victims []*v1.Pod
	tied := map[string]bool{}
	for range draws {
		one := plugin.Evaluator.SelectCandidate(ctx, candidates)
		if found.NominatedNode == "" || one.Name() < found.NominatedNode {
			found.NominatedNode, victims = one.Name(), one.Victims().Pods
		}
		tied[one.Name()] = true
	}
	if len(tied) > 1 {
		for name := range tied {
			found.Tied = append(found.Tied, name)
		}
		sort.Strings(found.Tied)
	}
	return victims, found, nil
}

// nominator holds the pods that wait for a node of theirs.
type nominator struct{ pods map[string][]fwk.PodInfo }

func (n *nominator) AddNominatedPod(klog.Logger, fwk.PodInfo, *fwk.NominatingInfo) {}
func (n *nominator) DeleteNominatedPodIfExists(*v1.Pod)                            {}
func (n *nominator) UpdateNominatedPod(klog.Logger, *v1.Pod, fwk.PodInfo)          {}
func (n *nominator) NominatedPodsForNode(name string) []fwk.PodInfo                { return n.pods[name] }

func values(scores fwk.NodeScoreList) []int64 {
	found := make([]int64, len(scores))
	for i, one := range scores {
		found[i] = one.Score
	}
	return found
}

func answered(status *fwk.Status) Answer {
	if status == nil {
		return Answer{Code: fwk.Success.String()}
	}
	return Answer{Code: status.Code().String(), Reasons: status.Reasons(), Plugin: status.Plugin()}
}

func (c *Case) profile() (*config.KubeSchedulerProfile, error) {
	text := []byte(absentConfig)
	if len(c.Config) > 0 {
		text = c.Config
	}
	object, _, err := configscheme.Codecs.UniversalDecoder().Decode(text, nil, nil)
	if err != nil {
		return nil, err
	}
	return &object.(*config.KubeSchedulerConfiguration).Profiles[0], nil
}
