"""Floor 3: conversion between YAML or JSON manifests and the values of `api`.

Input is never trusted and an error is never fatal: an invalid object is set aside with its file, field and an
actionable message, and all other objects are used.

May import: ``errors``, ``api``, ``ports``, ``config``. It does not import its sibling packages.
"""
