"""`EvalConfig`: every option of an evaluation, checked before anything starts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import gem_core
from gem_core._util.checks import defaults, expected
from gem_core._util.entry_points import is_file
from gem_core._util.options import Bounds, check_options
from gem_core._util.urls import data_without_secrets, without_secrets
from gem_core.errors import ConfigError
from gem_core.rollout import EpisodeLimits
from gem_core.rollout._limits import TokenLimit
from gem_core.rollout._options import ContextOptions
from gem_core.tasks import EVAL_SEEDS, EnvChoice
from gem_lab._engines.endpoint import SILENCE, check_extra_body
from gem_lab._options import LocalOptions, RunOptions, check_envs

ModelKind: TypeAlias = Literal["random", "oracle", "endpoint", "hf", "vllm"]

FREE = {
    "out", "concurrency", "requests_per_minute", "tokens_per_minute", "timeout", "give_up_after",
    "price_in", "price_out", "base_url", "api_key", "device", "threads",
}  # fmt: skip
"""Options that affect the duration, cost, or location of a run, but not its results."""

RAISABLE = {"episodes", "group_size"}
"""Options that may be increased to extend a run: its finished episodes are part of the longer run."""

_FOLDER = "a model in a folder"
_ENDPOINT = "a model at an endpoint"
_ONLY_FOR = {
    **dict.fromkeys(
        ("max_total_tokens", "template_kwargs", "chat_template", "date", "context", "raw"), _FOLDER
    ),
    "extra_body": _ENDPOINT,
    "native_tools": f"{_FOLDER} or {_ENDPOINT.removeprefix('a model ')}",
}
"""Options that not every kind of model has, with the kinds that have it."""


@dataclass(frozen=True, kw_only=True)
class EndpointOptions:
    """A model behind an HTTP endpoint.

    Attributes:
        api_key: Key of the endpoint, never written anywhere; None reads ``OPENAI_API_KEY``.
    """

    title: ClassVar = "model at an endpoint"

    base_url: Annotated[str | None, "address of the endpoint (default: OPENAI_BASE_URL, else OpenAI)"] = None
    api_key: str | None = field(default=None, repr=False)
    requests_per_minute: Annotated[float | None, "rate limit (default: unlimited)", Bounds(above=0)] = None
    tokens_per_minute: Annotated[
        float | None,
        "rate limit, counting prompts and the maximum length of answers (default: unlimited)",
        Bounds(above=0),
    ] = None
    timeout: Annotated[float, "seconds allowed for one request", Bounds(above=0)] = 120.0
    give_up_after: Annotated[
        float | None,
        "stop the run if nothing is answered for this many seconds after a failure; more than timeout, "
        "because an answer may take that long (default: 60 more)",
        Bounds(above=0),
    ] = None
    price_in: Annotated[float, "dollars per million prompt tokens", Bounds(0)] = 0.0
    price_out: Annotated[float, "dollars per million response tokens", Bounds(0)] = 0.0
    extra_body: Annotated[
        dict[str, Any],
        "fields for the body of each request; null leaves out a field, such as '{\"seed\": null}'",
    ] = field(default_factory=dict)

    @property
    def patience(self) -> float:
        """`give_up_after`, or its default."""
        return self.timeout + SILENCE if self.give_up_after is None else self.give_up_after


@dataclass(frozen=True)
class EvalConfig(TokenLimit, EpisodeLimits, ContextOptions, EndpointOptions, LocalOptions, RunOptions):
    """Options of an evaluation, including the limits of an episode.

    Raises:
        ConfigError: A value is out of range, or two values are incompatible.
        UnknownEnv: An environment does not exist.
    """

    title: ClassVar = "evaluation"

    model: Annotated[
        str,
        "random, oracle, a folder (hf:FOLDER for transformers, vllm:FOLDER for vLLM), or the name of a model "
        "at an endpoint (endpoint:NAME)",
    ] = ""
    env: Annotated[
        list[str],
        "environments: ids, 'ID(key=value)', shell-style patterns, 'ID as NAME' for a short name; @FILE "
        "reads them from the lines of a file",
    ] = field(default_factory=list)
    seed: Annotated[int, "random seed for sampling; the tasks do not depend on it"] = field(
        default=0, kw_only=True
    )
    temperature: Annotated[float, Bounds(0)] = field(default=1.0, kw_only=True)
    out: str = field(default="runs/eval", kw_only=True)
    concurrency: Annotated[int, "maximum concurrent requests"] = field(default=8, kw_only=True)
    max_tokens_per_turn: int = field(default=1024, kw_only=True)
    episodes: Annotated[
        int,
        "maximum tasks per environment, the same in every run; each item of a smaller dataset is played once",
        Bounds(1, len(EVAL_SEEDS)),
    ] = field(default=20, kw_only=True)
    top_p: Annotated[float, "nucleus sampling threshold", Bounds(high=1, above=0)] = field(
        default=1.0, kw_only=True
    )

    def __post_init__(self) -> None:
        check_envs(env=self.env)
        if any(source.weight != 1 for source in self.sources):
            raise ConfigError("an evaluation weighs all environments equally; omit the weights")
        if not self.model:
            raise expected("model", self.model, "a folder, or the name of a model")
        check_options(self)
        self.check_harness(self.harness)
        if self.give_up_after is not None and self.give_up_after <= self.timeout:
            raise expected(
                "give_up_after", self.give_up_after, f"more than timeout={self.timeout:g} seconds, so that a "
                "request can take its whole time before the endpoint counts as down",
            )  # fmt: skip
        if self.kind == "endpoint" and self.base_url is None and self.model.startswith((".", "/", "~")):
            raise ConfigError(
                f"model {self.model!r} is not a folder; if an endpoint serves it under this name, write "
                f"endpoint:{self.model}"
            )
        ordinary, place = defaults(EvalConfig), {"hf": "folder", "vllm": "folder"}.get(self.kind, self.kind)
        for name, kinds in _ONLY_FOR.items():
            if place not in kinds and getattr(self, name) != ordinary[name]:
                raise ConfigError(f"{name} is for {kinds}, not for {self.kind}; omit it")
        check_extra_body(self.extra_body)
        if self.kind == "hf" and self.temperature == 0:
            raise expected(
                "temperature", self.temperature, "a number above 0 for a Hugging Face folder; "
                "0.01 is practically greedy",
            )  # fmt: skip

    @property
    def kind(self) -> ModelKind:
        """Kind of `model`."""
        if self.model == "random":
            return "random"
        if self.model == "oracle":
            return "oracle"
        prefix = self.model.partition(":")[0]
        if prefix == "hf":
            return "hf"
        if prefix == "vllm":
            return "vllm"
        if prefix == "endpoint":
            return "endpoint"
        return "hf" if self.base_url is None and Path(self.model).is_dir() else "endpoint"

    @property
    def name(self) -> str:
        """Name of the model without the prefix for its kind."""
        prefix, colon, rest = self.model.partition(":")
        return rest if colon and prefix in ("hf", "vllm", "endpoint") else self.model

    def identity(self) -> dict[str, Any]:
        """Return all options that affect the results; a folder holds the episodes of one identity only."""
        mine = {item.name: getattr(self, item.name) for item in fields(self) if item.name not in FREE}
        env = [without_secrets(source.text) for source in self.sources]
        code = {"files": files} if (files := file_hashes(self.sources)) else {}
        mine = data_without_secrets(mine)
        return {**mine, "kind": self.kind, "env": env, "gem_core": gem_core.__version__, **code}

    def differences(self, recorded: Mapping[str, Any]) -> list[str]:
        """Return the differences from the identity of an earlier run, as ``name: then, now``.

        Increased values of options in `RAISABLE` do not count as differences. An option that the record lacks
        had its default; one that only the record has, because another version wrote it, is a difference.
        """
        mine = self.identity()
        before = {**data_without_secrets(defaults(EvalConfig)), **recorded}
        then, now = recorded.get("files", {}), mine.get("files", {})
        return [
            f"{name}: {before.get(name)!r} then, {mine.get(name)!r} now"
            for name in sorted((mine.keys() | recorded.keys()) - FREE - {"files"})
            if (name not in mine or mine[name] != before.get(name))
            and not (name in RAISABLE and _is_raised(before.get(name), mine[name]))
        ] + [f"{path} has changed" for path in sorted(then.keys() & now.keys()) if then[path] != now[path]]


def file_hashes(sources: Iterable[EnvChoice]) -> dict[str, str]:
    """Return the SHA-256 of each Python file that the id ``PATH.py:CLASS`` of an environment names."""
    paths = {source.env_id.partition(":")[0] for source in sources}
    return {
        path: hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in sorted(filter(is_file, paths))
    }


def _is_raised(then: Any, now: int) -> bool:
    return isinstance(then, int) and then < now
