"""A binder that records its writes, for tests of the binding cycle."""

from collections.abc import Sequence

from batchsched.ports.cluster import Binding, SelectedNode, VolumeBinding


class Written:
    """Takes every write, and answers that claims are bound, or not in time; or fails at every write."""

    def __init__(self, *, bound: bool = True, fault: Exception | None = None) -> None:
        self.writes: list[Binding | VolumeBinding | SelectedNode] = []
        self.awaited: list[tuple[tuple[str, ...], float]] = []
        self._bound = bound
        self._fault = fault

    def _take(self, write: Binding | VolumeBinding | SelectedNode) -> None:
        if self._fault is not None:
            raise self._fault
        self.writes.append(write)

    async def bind(self, binding: Binding) -> None:
        self._take(binding)

    async def bind_volume(self, binding: VolumeBinding) -> None:
        self._take(binding)

    async def write_selected_node(self, selection: SelectedNode) -> None:
        self._take(selection)

    async def wait_for_bound_claims(self, claims: Sequence[str], timeout_seconds: float) -> bool:
        self.awaited.append((tuple(claims), timeout_seconds))
        return self._bound
