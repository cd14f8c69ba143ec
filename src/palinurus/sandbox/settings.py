"""Settings of the sandbox: where commands run, what they see and what they may use."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from msgspec.structs import replace

from palinurus.config.home import Home
from palinurus.config.load import Config
from palinurus.config.section import OptionForm, Section, build_values, option, whole


class DockerOptions(Section, frozen=True):
    """Options of the docker backend."""

    foreign: ClassVar = {
        "": """containerPrefix workdir readOnlyRoot tmpfs user capDrop setupCommand memorySwap ulimits seccompProfile
        apparmorProfile dns extraHosts binds dangerouslyAllowReservedContainerTargets
        dangerouslyAllowExternalBindSources dangerouslyAllowContainerNamespaceJoin"""
    }

    image: Annotated[str | None, option("The image that commands run in. Unset: debian:bookworm-slim.")] = None
    network: Annotated[str | None, option("The container's network. Unset: none; host is refused.")] = None
    env: Annotated[dict[str, str], option("Variables that commands see.")] = {}
    memory: Annotated[str | int | None, option("Memory limit, such as 1g.")] = None
    cpus: Annotated[float | None, option("CPU limit.", gt=0)] = None
    pids_limit: Annotated[int | None, option("Process limit.", gt=0)] = None


class SandboxSettings(Section, frozen=True):
    """Where commands run. Mode auto: in a sandbox if the machine has one, else on the host with approval."""

    foreign: ClassVar = {"": "browser prune ssh perSession sessionToolsVisibility"}

    root: Path  # of private workspaces
    mode: Annotated[
        Literal["auto", "off", "non-main", "all"],
        option(
            "Which sessions are sandboxed. Unset: all if possible, otherwise commands need approval. Set: without a"
            " working sandbox, commands are refused.",
            form=OptionForm(Literal["off", "non-main", "all"], str, lambda _: None),
        ),
    ] = "auto"
    scope: Annotated[
        Literal["session", "agent", "shared"], option("Who shares one sandbox and its private workspace.")
    ] = "agent"
    backend: Annotated[Literal["bubblewrap", "docker"], option("What isolates commands; docker is experimental.")] = (
        "bubblewrap"
    )
    access: Annotated[
        Literal["none", "ro", "rw"],
        option(
            "The agent's workspace inside: none (a private copy), ro or rw. Unset: none if mode is set.",
            "workspaceAccess",
        ),
    ] = "rw"
    network: Annotated[bool, option("Whether commands reach the network.")] = False
    memory_mb: Annotated[int, option("Total memory of a command, in MiB.", ge=64)] = 2048
    processes: Annotated[int, option("Processes at the same time.", ge=8)] = 128
    cpu_seconds: Annotated[int, option("CPU time of one process.", ge=1)] = 600
    file_mb: Annotated[int, option("Size of one written file, in MiB.", ge=1)] = 1024
    disk_mb: Annotated[int, option("What a command may write in total, in MiB.", ge=1)] = 20_480
    env: Annotated[Mapping[str, str], option("Variables that commands see.")] = {}
    docker: Annotated[DockerOptions, option("Options of the docker backend.", form=whole(DockerOptions))] = (
        DockerOptions()
    )
    workspace_root: Annotated[str, option("The folder of private workspaces. Unset: <home>/sandboxes.")] = ""


def sandbox_settings(config: Config, home: Home, agent_id: str) -> SandboxSettings:
    said = build_values(SandboxSettings, [layer.data for layer in config.layers(SandboxSettings, agent_id)])
    if "access" not in said and said.get("mode") in ("non-main", "all"):
        said["access"] = "none"
    made = SandboxSettings(root=home.root / "sandboxes", **said)
    return replace(made, root=home.expand(made.workspace_root, home.root)) if made.workspace_root else made
