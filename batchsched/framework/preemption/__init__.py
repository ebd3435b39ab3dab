"""Dry runs of preemption for PostFilter plugins."""
