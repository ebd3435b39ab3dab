"""What a simulator may ask of a scheduler, and who answers."""

from batchsched.config.schema import Profile
from batchsched.ports.scheduler import Scheduler, SchedulerFactory
from batchsched.session.follow import Follower
from tests.session.scenario import NOW, cluster, gang, nodes, placed


def make(snapshot) -> Scheduler:
    return Follower(snapshot, Profile())


def test_the_follower_is_a_scheduler():
    factory: SchedulerFactory = make
    snapshot = cluster(nodes(2, gpu=1), gang("bert", 2))
    scheduler = factory(cluster(snapshot.nodes))
    scheduler.add_group(snapshot.pod_groups[0])
    scheduler.add_pods(snapshot.pods)
    scheduler.hold(())
    assert len(placed(scheduler.decide(NOW, 0))) == 2
    scheduler.remove_pods(snapshot.pods)
    scheduler.remove_group("team/bert")
    assert scheduler.decide(NOW, 0).refusals == ()
