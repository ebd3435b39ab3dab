"""The lab: experiments that compare policies by simulation, with self-contained HTML reports.

This package composes simulated runs, compares and draws them; it makes no scheduling decisions.
"""
