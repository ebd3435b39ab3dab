"""Messages of refusals: sentences with names, made from the numbers of the solver's evidence."""

from collections.abc import Mapping, Sequence

from batchsched.api.core.quantity import show
from batchsched.session.joint.formulation import Formulation, SessionContext
from batchsched.solver.problem import NONE, IntArray
from batchsched.solver.relaxation.changes import (
    CombinedChange,
    LevelChange,
    NodeChange,
    PodChange,
    QuotaChange,
    Relaxation,
    RowChange,
)
from batchsched.solver.relaxation.explain import RefusalEvidence
from batchsched.solver.relaxation.search import RefusalCause

REASON_OF: Mapping[RefusalCause, str] = {
    RefusalCause.NO_NODE: "NoFeasibleNode",
    RefusalCause.POD_TOO_LARGE: "NoFeasibleNode",
    RefusalCause.TOO_FEW_PODS: "NotEnoughPods",
    RefusalCause.QUOTA: "QueueLimit",
    RefusalCause.CAPACITY: "InsufficientResources",
    RefusalCause.FRAGMENTED: "InsufficientResources",
    RefusalCause.TOPOLOGY: "InsufficientTopologyCapacity",
    RefusalCause.ROW: "PluginConstraint",
    RefusalCause.NOT_ALLOWED: "PluginConstraint",
}


class RefusalMessages:
    """Writes the messages for the evidence of one formulation.

    Args:
      context: for names of levels, domains and nodes.
      formulation: the problem that the evidence is about.
    """

    def __init__(self, context: SessionContext, formulation: Formulation) -> None:
        self._context = context
        self._formulation = formulation
        self._table = context.tables.node_table

    def message(self, evidence: RefusalEvidence) -> str:
        """Return one sentence: the binding constraint, and how much is missing."""
        lost = "; gangs of a higher priority or more weight took the room" if evidence.outbid else ""
        return f"{self._what(evidence)}{lost}"

    def _what(self, evidence: RefusalEvidence) -> str:
        missing = self._amounts(self.missing(evidence))
        fit = f"{evidence.fits} of the {evidence.need} pods it needs fit"
        match evidence.cause:
            case RefusalCause.QUOTA:
                return self._quota(evidence)
            case RefusalCause.TOPOLOGY:
                return self._topology(evidence, fit, missing)
            case RefusalCause.POD_TOO_LARGE:
                return f"a pod asks for more than any node that it may use has; missing: {missing}"
            case RefusalCause.NO_NODE:
                return f"no node passes the filters of a pod: {self._filters(evidence)}"
            case RefusalCause.FRAGMENTED:
                return f"{fit}; enough is free in sum, and too little of it together on one node"
            case RefusalCause.ROW if evidence.row != NONE:
                row = self._formulation.problem.rows[evidence.row]
                return f"plugin {row.plugin} does not leave a way: {row.reason}"
            case RefusalCause.ROW | RefusalCause.NOT_ALLOWED:
                return f"{fit}; rules between pods do not leave a way for the others"
        return f"{fit}; missing: {missing}" if missing else fit

    def gathered(self, evidence: RefusalEvidence) -> str:
        """Return the message for a gang that a rule between its pods restricts to one domain."""
        label = self._formulation.gathered[evidence.gang]
        fit = f"{evidence.fits} of the {evidence.need} pods it needs fit"
        return f"rules between pods keep it in one domain of {label}, and {fit} in the best"

    def _quota(self, evidence: RefusalEvidence) -> str:
        limit = self._formulation.quotas.limits[evidence.quota]
        name = f"{limit.name} for user {limit.user}" if limit.user else limit.name
        if limit.kept:
            return f"what {name} does not lend is kept free; missing beside it: {self._amounts(self.missing(evidence))}"
        if evidence.missing_gangs:
            return f"queue {name} runs as many PodGroups as maxRunningPodGroups allows"
        return f"the limit of queue {name} is short of {self._amounts(self.missing(evidence))}"

    def _topology(self, evidence: RefusalEvidence, fit: str, missing: str) -> str:
        if evidence.level == NONE or evidence.domain == NONE:
            return f"{fit} in any domain; missing in the best: {missing}"
        if evidence.domain >= len(self._context.levels.values[evidence.level]):
            return f"no node lies in any {self._context.levels.names[evidence.level][1]}: none has the level's label"
        domain = self._named_domain(evidence.level, evidence.domain)
        return f"{fit} in {domain}, the best of its level; missing there: {missing}"

    def _named_domain(self, level: int, domain: int) -> str:
        """Return the name of a domain; an index beyond the existing domains means a new one."""
        _, name = self._context.levels.names[level]
        values = self._context.levels.values[level]
        return f"{name} {values[domain]}" if domain < len(values) else f"a new {name}"

    def _filters(self, evidence: RefusalEvidence) -> str:
        for part in self._formulation.gangs[evidence.gang].parts:
            surveyed = self._context.feasibility.of(part.pod_class)
            if surveyed.scan is not None and not surveyed.mask.any():
                return surveyed.scan.fit_error()
        return "no node is left for some of them"

    def missing(self, evidence: RefusalEvidence) -> dict[str, int]:
        """Return the missing amounts by resource in base units, without the number of pods."""
        return self._named(evidence.missing)

    def _named(self, amounts: IntArray) -> dict[str, int]:
        return {
            resource: int(amount)
            for resource, amount in zip(self._table.resources[1:], amounts[1:], strict=False)
            if amount > 0
        }

    def _amounts(self, amounts: Mapping[str, int]) -> str:
        return ", ".join(f"{resource} {show(resource, amount)}" for resource, amount in amounts.items())

    def relaxation(self, change: Relaxation | None) -> str:
        """Return the smallest change that admits the gang, in words; "" for none."""
        match change:
            case None:
                return ""
            case LevelChange(_, level, subgroup):
                part = f" for its subGroup {self._subgroup(change)}" if subgroup != NONE else ""
                if level == NONE:
                    return f"fits without a required level{part}"
                return f"fits at level {self._context.levels.names[level][1]}{part}"
            case NodeChange():
                return self._nodes(change)
            case QuotaChange(quota, amounts, gangs):
                return self._limit(quota, amounts, gangs)
            case RowChange(row, by):
                rule = self._formulation.problem.rows[row]
                return f"fits when the rule of {rule.plugin} is looser by {by}: {rule.reason}"
            case PodChange(_, count):
                return f"{count} more pods"
            case CombinedChange(parts):
                return " and ".join(text for part in parts if (text := self.relaxation(part)))

    def _limit(self, quota: int, amounts: Sequence[int], gangs: int) -> str:
        """Return by how much the limits of a queue would have to rise, including present usage above them."""
        quotas = self._formulation.quotas
        limit, over = quotas.limits[quota], quotas.over[quota].tolist()
        more = {
            resource: amount + above
            for resource, amount, above in zip(self._table.resources, amounts, over, strict=False)
            if amount > 0 and resource in limit.resources
        }
        parts = []
        if more:
            parts.append(f"waits for queue limit: {limit.name} would need {self._amounts(more)} more")
        if gangs and limit.pod_groups is not None:
            many = gangs + int(quotas.over_gangs[quota])
            noun = "PodGroup" if many == 1 else "PodGroups"
            parts.append(f"waits until queue {limit.name} may run {many} more {noun} (maxRunningPodGroups)")
        return " and ".join(parts)

    def _subgroup(self, change: LevelChange) -> str:
        problem = self._formulation.problem
        place = int(
            (problem.subgroups.gang[: change.subgroup] == problem.subgroups.gang[change.subgroup]).sum()
        )
        group = self._formulation.gangs[change.gang].members.group
        return group.spec.sub_groups[place].name if group is not None else str(place)

    def _nodes(self, change: NodeChange) -> str:
        table = self._table
        offered = {
            resource: int(amount)
            for resource, amount in zip(table.resources[1:], table.allocatable[change.like][1:], strict=True)
            if amount > 0
        }
        for resource, amount in zip(table.resources, change.extra, strict=False):
            if amount > 0:
                offered[resource] = offered.get(resource, 0) + int(amount)
        where = ""
        if change.level != NONE and change.domain != NONE:
            where = f" in {self._named_domain(change.level, change.domain)}"
        noun = "node" if change.count == 1 else "nodes"
        larger = " but larger" if any(change.extra) else ""
        if change.passing != NONE:
            larger += " and open to its pods"
        return f"{change.count} more {noun} like {table.names[change.like]}{larger} ({self._amounts(offered)}){where}"
