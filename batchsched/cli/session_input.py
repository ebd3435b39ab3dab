"""Reads the input of a command's session: the files of a cluster, the profile and the time."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import typer

from batchsched.api.crd.validation import suggest_name
from batchsched.api.snapshot import Snapshot
from batchsched.cli.options import check_files_exist
from batchsched.config.load import load_configuration, load_configuration_with_warnings
from batchsched.config.schema import BatchSchedulerConfiguration, PodGrouperSettings, Profile
from batchsched.errors import InvalidInput
from batchsched.record.cluster_files import ClusterFiles, SessionSettings, read_cluster_files

_MOST_SHOWN: Final = 50
"""Maximum number of set-aside objects and of warnings on standard error; the decision contains all of them."""


def read_session_input(
    files: Sequence[Path], config: Path | None, profile_name: str | None, now: float | None
) -> tuple[ClusterFiles, SessionSettings]:
    """Read the input files of a command, and return them with the profile and the time of the session.

    A recorded session states its time and its profile, and a dump states its time; options take precedence.

    Raises:
      BadParameter: a file does not exist.
      InvalidInput: the configuration, a dump or a session cannot be used.
    """
    check_files_exist(files)
    cluster_files = read_cluster_files(files)
    recorded = cluster_files.session
    if recorded is not None and config is None and profile_name is None:
        profile = recorded.profile
    else:
        profile = profile_for_command(config, profile_name)
    return cluster_files, SessionSettings(
        profile, cluster_files.session_time(now), pod_grouper_settings(config)
    )


def pod_grouper_settings(config: Path | None) -> PodGrouperSettings:
    """Return the settings of the pod grouper from a configuration file, or the defaults if no file is given.

    Raises:
      InvalidInput: the file cannot be used.
    """
    return PodGrouperSettings() if config is None else load_configuration(config).pod_grouper


@contextmanager
def name_configuration_in_errors(config: Path | None, profile_name: str | None) -> Iterator[None]:
    """Return a context manager that adds the configuration file and the profile to errors about settings."""
    try:
        yield
    except InvalidInput as error:
        if error.file or config is None:
            raise
        profiles = load_configuration_with_warnings(config)[0].profiles
        names = [profile.scheduler_name for profile in profiles]
        index = 0 if profile_name is None else names.index(profile_name)
        field = error.field.removeprefix("profiles[].")
        if error.object.startswith("policy ") and field.startswith("args"):
            field = f"policy.{field}"
        raise InvalidInput(
            error.message, file=str(config), object=error.object, field=f"profiles[{index}].{field}"
        ) from error


def profile_for_command(config: Path | None, name: str | None) -> Profile:
    """Return the profile that a command uses for its sessions, from a configuration file or the default.

    A warning is printed for each setting that has no effect.

    Raises:
      InvalidInput: the file cannot be used.
      BadParameter: there is no profile of that name.
    """
    configuration, warnings = (
        (BatchSchedulerConfiguration(), ()) if config is None else load_configuration_with_warnings(config)
    )
    profiles = {profile.scheduler_name: profile for profile in configuration.profiles}
    if name is not None and name not in profiles:
        file = f" in {config}" if config else ""
        raise typer.BadParameter(
            f"there is no profile {name!r}{file}; {suggest_name(name, list(profiles))}",
            param_hint="--profile",
        )
    profile = configuration.profiles[0] if name is None else profiles[name]
    if config is not None:
        from batchsched.framework.runtime.registry import standard_registry

        absent = standard_registry().ignored_plugin_names(profile)
        if absent:
            warnings = (*warnings, f"{config}: not installed, and ignored: {', '.join(absent)}")
        print_warnings([f"warning: {line}" for line in warnings])
    return profile


def warn_of_ignored_policy(snapshot: Snapshot, profile: Profile, config: Path | None) -> None:
    """Print a warning if the gang order of the profile has no effect in sessions over this cluster."""
    from batchsched.queues.tree import QueueTree
    from batchsched.session.gangs.order import ignored_policy_reason

    text = ignored_policy_reason(profile, QueueTree(snapshot.queues))
    if text:
        place = f"{config}: " if config else ""
        print_warnings([f"warning: {place}profile {profile.scheduler_name}: {text}"])


def print_warnings(lines: Sequence[str]) -> None:
    """Print warnings on standard error, up to a maximum; then print only the number of further warnings."""
    for line in lines[:_MOST_SHOWN]:
        print(line, file=sys.stderr)
    if len(lines) > _MOST_SHOWN:
        print(f"and {len(lines) - _MOST_SHOWN} more", file=sys.stderr)
