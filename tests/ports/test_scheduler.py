"""What a simulator may ask of a scheduler, and who answers."""

from batchsched.config.schema import Profile
from batchsched.ports.scheduler import ClusterChanges, Scheduler, SchedulerFactory
from batchsched.session.session import Session
from tests.session.scenario import NOW, cluster, gang, nodes, placed


def make(snapshot) -> Scheduler:
    return Session(snapshot, Profile())


def test_the_follower_is_a_scheduler():
    factory: SchedulerFactory = make
    snapshot = cluster(nodes(2, gpu=1), gang("bert", 2))
    scheduler = factory(cluster(snapshot.nodes))
    scheduler.apply(ClusterChanges(pod_groups=snapshot.pod_groups, added_pods=snapshot.pods))
    scheduler.hold(())
    assert len(placed(scheduler.decide(NOW, 0))) == 2
    scheduler.apply(ClusterChanges(removed_pods=snapshot.pods, removed_pod_groups=("team/bert",)))
    assert scheduler.decide(NOW, 0).refusals == ()
