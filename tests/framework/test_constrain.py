"""Domains as arrays: sums, and rows."""

import numpy as np

from batchsched.framework.constrain import EVERY_NODE, CandidateSet, ConstraintDomains, sum_by_domain


def test_by_domain_sums_each_domain_and_the_nodes_without_a_label():
    codes = np.asarray([0, 1, -1, 1], np.int32)
    sums = sum_by_domain(codes, np.asarray([1, 2, 3, 4]), 3)
    assert sums.tolist() == [1, 6, 0, 3]
    assert sums[codes].tolist() == [1, 6, 3, 6]


def test_domains_of_several_nodes_become_a_partition_without_gaps():
    batch = CandidateSet(())
    domains = ConstraintDomains.from_domain_numbers(batch, np.asarray([2, 0, -1, 2], np.int32))
    assert batch.partitions[domains.partition].tolist() == [1, 0, -1, 1]
    assert domains.row_limits(np.asarray([5, 6, 7]), 99).tolist() == [5, 7]


def test_domains_of_one_node_each_are_rows_of_nodes():
    domains = ConstraintDomains.from_domain_numbers(CandidateSet(()), np.asarray([2, 0, -1], np.int32))
    assert domains.partition == EVERY_NODE
    assert domains.row_limits(np.asarray([5, 6, 7]), 99).tolist() == [7, 5, 99]
