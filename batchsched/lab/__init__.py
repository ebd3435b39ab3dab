"""Experiments: scenarios, sweeps over policies, and self-contained HTML reports.

This package composes simulated runs, compares and draws them; it makes no scheduling decisions.
"""
