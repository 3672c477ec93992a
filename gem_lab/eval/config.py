"""`EvalConfig`: every option of an evaluation, checked before anything starts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import gem_core
from gem_core._util.checks import check_int, check_number, defaults, expected
from gem_core._util.entry_points import is_file
from gem_core._util.urls import data_without_secrets, without_secrets
from gem_core.errors import ConfigError
from gem_core.registration import spec
from gem_core.rollout.limits import EpisodeLimits
from gem_core.tasks import EVAL_SEEDS, EnvChoice, check_labels
from gem_lab.engines.endpoint import SILENCE, check_extra_body

ModelKind: TypeAlias = Literal["random", "oracle", "endpoint", "hf", "vllm"]

FREE = {
    "out", "concurrency", "requests_per_minute", "tokens_per_minute", "timeout", "give_up_after",
    "price_in", "price_out", "base_url", "api_key", "device", "threads",
}  # fmt: skip
"""Options that affect the duration, cost, or location of a run, but not its results."""

RAISABLE = {"episodes", "samples"}
"""Options that may be increased to extend a run: its finished episodes are part of the longer run."""


@dataclass(frozen=True)
class EvalConfig(EpisodeLimits):
    """Options of an evaluation, including the limits of an episode.

    Attributes:
        model: ``random``, ``oracle``, ``hf:FOLDER``, ``vllm:FOLDER``, or ``endpoint:NAME``. Without a prefix,
            the name of an existing folder is a Hugging Face model and any other name a model at the endpoint.
        envs: Environments, each ``ID`` or ``ID(key=value, ...)``, and `` as NAME`` for a name in the results.
        episodes: Maximum number of tasks per environment. The tasks are always the same, so that runs are
            comparable. Each item of a dataset with fewer evaluation items is played once.
        samples: Number of episodes per task; at least 2 for pass@k.
        seed: Random seed for sampling.
        out: Folder of the run.
        base_url: URL of the endpoint; None reads ``OPENAI_BASE_URL``, and falls back to OpenAI's URL.
        api_key: Key of the endpoint, never written anywhere; None reads ``OPENAI_API_KEY``.
        temperature: Sampling temperature.
        top_p: Nucleus sampling threshold.
        max_total_tokens: Maximum number of tokens of an episode; None for the limit of the model. Accepted
            for Hugging Face and vLLM models only.
        system_prompt: First message of each conversation.
        parse_special: Whether a special token that an environment spells, such as ``<|im_end|>``, reaches
            the model as that token; see `AppendContext` and `MessagesContext`.
        wrappers: Wrappers around each environment, as in `gem_core.make`.
        native_tools: Whether an endpoint gets the schemas of an environment's tools (``tools=``) and answers
            with native tool calls. Otherwise the first observation explains the tools as text.
        extra_body: Fields for the body of each request, which replace those of the same name, such as
            ``{"chat_template_kwargs": {"enable_thinking": False}}`` for vLLM and SGLang; None as a value
            leaves out the field, such as ``{"seed": None}``.
        template_kwargs: Variables for the chat template of a model in a folder.
        chat_template: File with a chat template, its Jinja text, or the name of one of the tokenizer's
            templates, for a model in a folder; None for its own.
        date: Day that the chat template takes for today, such as ``"2026-01-31"``; None for the real one.
        concurrency: Maximum number of concurrent requests.
        requests_per_minute: Rate limit of the endpoint; None for no limit.
        tokens_per_minute: Rate limit of the endpoint, counting prompts and the maximum length of answers;
            None for no limit.
        timeout: Seconds allowed for one request.
        give_up_after: Seconds after its first failure until a call that keeps failing ends the run, unless
            another call succeeds; more than `timeout`, because an answer may take that long. None means 60
            seconds more.
        price_in: Dollars per million prompt tokens.
        price_out: Dollars per million answer tokens.
        device: Torch device of a Hugging Face model.
        threads: Number of torch threads for a Hugging Face model; 0 keeps torch's default.

    Raises:
        ConfigError: A value is out of range, or two values are incompatible.
        UnknownEnv: An environment does not exist.
    """

    model: str
    envs: list[str]
    episodes: int = 20
    samples: int = 1
    seed: int = 0
    out: str = "runs/eval"
    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens_per_turn: Annotated[int, "maximum tokens per response"] = field(default=1024, kw_only=True)
    max_total_tokens: int | None = None
    system_prompt: str | None = None
    parse_special: bool = False
    wrappers: str = ""
    native_tools: bool = False
    extra_body: dict[str, Any] = field(default_factory=dict)
    template_kwargs: dict[str, Any] = field(default_factory=dict)
    chat_template: str | None = None
    date: str | None = None
    concurrency: int = 8
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    timeout: float = 120.0
    give_up_after: float | None = None
    price_in: float = 0.0
    price_out: float = 0.0
    device: str = "auto"
    threads: int = 0

    def __post_init__(self) -> None:
        if not self.envs or not isinstance(self.envs, list | tuple):
            raise expected("envs", self.envs, "a list of at least one environment")
        check_labels(self.sources)
        labels = [source.label for source in self.sources]
        for source in self.sources:
            spec(source.env_id)
            if labels.count(source.label) > 1:
                raise ConfigError(f"{source.label} is listed twice")
        self._check_numbers()
        if self.kind == "endpoint" and self.base_url is None and self.model.startswith((".", "/", "~")):
            raise ConfigError(
                f"model {self.model!r} is not a folder; if an endpoint serves it under this name, write "
                f"endpoint:{self.model}"
            )
        is_folder = self.kind in ("hf", "vllm")
        if not is_folder and self.max_total_tokens is not None:
            raise ConfigError(f"max_total_tokens counts tokens, which {self.kind} does not report; omit it")
        if self.extra_body and self.kind != "endpoint":
            raise ConfigError(f"extra_body is for the requests to an endpoint, not for {self.kind}")
        check_extra_body(self.extra_body)
        if self.native_tools and self.kind != "endpoint":
            raise ConfigError(f"native_tools is for the requests to an endpoint, not for {self.kind}")
        if self.template_kwargs and not is_folder:
            raise ConfigError(f"template_kwargs are for the chat template of a folder, not for {self.kind}")
        for name in ("chat_template", "date"):
            if getattr(self, name) is not None and not is_folder:
                raise ConfigError(f"{name} is for the chat template of a folder, not for {self.kind}")
        if self.kind == "hf" and self.temperature == 0:
            raise expected(
                "temperature", self.temperature, "a number above 0 for a Hugging Face folder; "
                "0.01 is practically greedy",
            )  # fmt: skip

    def _check_numbers(self) -> None:
        check_int("episodes", self.episodes, 1, len(EVAL_SEEDS))
        for name in ("samples", "max_tokens_per_turn", "concurrency"):
            check_int(name, getattr(self, name), 1)
        for name in ("seed", "threads"):
            check_int(name, getattr(self, name), 0)
        check_int("max_total_tokens", self.max_total_tokens, 1, optional=True)
        for name in ("temperature", "price_in", "price_out"):
            check_number(name, getattr(self, name), 0)
        check_number("top_p", self.top_p, above=0, high=1)
        check_number("timeout", self.timeout, above=0)
        for name in ("give_up_after", "requests_per_minute", "tokens_per_minute"):
            check_number(name, getattr(self, name), above=0, optional=True)
        if self.give_up_after is not None and self.give_up_after <= self.timeout:
            raise expected(
                "give_up_after", self.give_up_after, f"more than timeout={self.timeout:g} seconds, so that a "
                "request can take its whole time before the endpoint counts as down",
            )  # fmt: skip
        self.check_limits()

    @property
    def patience(self) -> float:
        """`give_up_after`, or its default."""
        return self.timeout + SILENCE if self.give_up_after is None else self.give_up_after

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

    @property
    def sources(self) -> list[EnvChoice]:
        """Environments with their arguments."""
        sources = [EnvChoice.parse(text) for text in self.envs]
        if any(source.weight != 1 for source in sources):
            raise ConfigError("an evaluation weighs all environments equally; omit the weights")
        return sources

    def identity(self) -> dict[str, Any]:
        """Return all options that affect the results; a folder holds the episodes of one identity only."""
        mine = {item.name: getattr(self, item.name) for item in fields(self) if item.name not in FREE}
        envs = [without_secrets(source.text) for source in self.sources]
        code = {"files": files} if (files := file_hashes(self.sources)) else {}
        mine = data_without_secrets(mine)
        return {**mine, "kind": self.kind, "envs": envs, "gem_core": gem_core.__version__, **code}

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
