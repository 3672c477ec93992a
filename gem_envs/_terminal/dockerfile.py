"""The files that a Dockerfile copies into its image, for sandboxes that do not build the image."""

from __future__ import annotations

import shlex
from pathlib import Path, PurePosixPath

from gem_core._util.foreign_json import read_json
from gem_core.errors import DataError
from gem_envs._links import check_links
from gem_envs.sandbox._shell import File

HOME = PurePosixPath("/app")
_QUIET = frozenset(
    ("FROM", "ENV", "ARG", "LABEL", "CMD", "ENTRYPOINT", "EXPOSE", "USER", "SHELL", "MAINTAINER")
)
_NOT_COPIED = frozenset((
    "Dockerfile", "docker-compose.yaml", "task.yaml", "task.toml", "instruction.md", "run-tests.sh", "tests",
    "solution.sh", "solution.yaml", "solution",
))  # fmt: skip
_MOST = 32 * 2**20


def files_of(path: Path) -> dict[str, File]:
    """Return the initial files of ``/app``, by path below it.

    Raises:
        DataError: The image installs something or has files outside ``/app``.
    """
    files: dict[str, File] = {}
    if not path.is_file():
        return files
    check_links(path.parent)
    folder = HOME
    for word, rest in _instructions(path.read_text(encoding="utf-8")):
        if word in _QUIET:
            continue
        if word == "WORKDIR":
            folder = folder / rest.strip()
            _below(folder)
        elif word in ("COPY", "ADD"):
            _copy(path.parent, rest, folder, files)
        elif word == "RUN" and rest.split()[:2] == ["mkdir", "-p"] and not set(rest) & set(";&|$`<>"):
            for name in shlex.split(rest)[2:]:
                files[_below(folder / name)] = File(folder=True, mode=0o755)
        else:
            raise DataError(f"its image needs the unsupported instruction {word} {rest[:60]}")
    files.pop(".", None)
    if sum(len(file.data) for file in files.values()) > _MOST:
        raise DataError(f"its files are larger than {_MOST >> 20} MiB")
    return files


def _instructions(text: str) -> list[tuple[str, str]]:
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    parts = (line.strip().partition(" ") for line in joined.splitlines())
    return [(word.upper(), rest.strip()) for word, _, rest in parts]


def _below(path: PurePosixPath) -> str:
    """Return the path relative to ``/app``."""
    if not path.is_relative_to(HOME) or ".." in path.parts:
        raise DataError(f"it has files in {path}, but a sandbox supports only files in {HOME}")
    return str(path.relative_to(HOME))


def _copy(context: Path, rest: str, folder: PurePosixPath, files: dict[str, File]) -> None:
    words = read_json(rest) if rest.startswith("[") else shlex.split(rest)
    names = [word for word in words if not word.startswith("--")]
    if len(names) < 2 or any(word.startswith("--from") or "://" in word for word in words):
        raise DataError(f"its image needs the unsupported instruction COPY {rest[:60]}")
    *sources, target = names
    into = folder / target
    many = target.endswith("/") or target in (".", "..") or len(sources) > 1
    for source in sources:
        paths = sorted(context.glob(source)) if "*" in source else [context / source]
        for path in paths:
            if not path.resolve().is_relative_to(context.resolve()) or not path.exists():
                raise DataError(f"its image needs {source}, which does not exist")
            if path.is_dir():
                _copy_folder(path, into, context, files)
            else:
                named = into / path.name if many or len(paths) > 1 else into
                files[_below(named)] = _file(path)


def _copy_folder(path: Path, into: PurePosixPath, context: Path, files: dict[str, File]) -> None:
    for one in sorted(path.rglob("*")):
        inside = one.relative_to(path)
        if path == context and inside.parts[0] in _NOT_COPIED:  # the answers are not for the player
            continue
        name = _below(into / inside.as_posix())
        if one.is_file():
            files[name] = _file(one)
        elif one.is_dir():
            files[name] = File(folder=True, mode=0o755)


def _file(path: Path) -> File:
    if path.stat().st_size > _MOST:
        raise DataError(f"{path.name} is larger than {_MOST >> 20} MiB")
    return File(path.read_bytes(), path.stat().st_mode & 0o777)
