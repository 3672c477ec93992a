"""What a verl config says about GEM, and what it must not say.

Options of the rollout stand in a section of their own, ``+gem.<option>=<value>``; options of an
estimator under its name, ``+algorithm.rebn.ddof=1``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from gem_core.errors import ConfigError
from gem_core.registration import suggest
from gem_core.rollout import AppendContext, Context, RebuildContext

ESTIMATORS = {"rebn": "rebn", "gem_reinforce": "reinforce", "gem_grpo": "grpo", "gem_rloo": "rloo"}
"""verl's ``algorithm.adv_estimator`` and the name of the estimator in gem_core."""

ESTIMATOR_OPTIONS = {
    "rebn": ("ddof", "eps", "min_std", "scope"),
    "gem_reinforce": (),
    "gem_grpo": ("ddof", "eps", "min_std"),
    "gem_rloo": (),
}
TRAINER_MODE = "gem_sync"


@dataclass(frozen=True)
class GemOptions:
    """The section ``gem`` of a verl config.

    Attributes:
        max_turns: Most turns of an episode; None leaves it to the environment and the token limits.
        max_tokens_per_turn: Most tokens of one response; None for 512, or less when
            ``data.max_response_length`` is less.
        context: "append" keeps what was sampled and adds the environment's messages; "rebuild" takes
            each observation as a whole new prompt.
        raw: In rebuild contexts: the observation has the chat template already.
        layout: Rows of the training batch: "episode" or "turn". "auto" takes the first where the
            context allows it.
        wrappers: Wrappers around every environment, as in `gem_core.make`.
        system_prompt: First message of a conversation; None leaves it to the template.
        on_length_cut: What the environment gets for a response that the length limit cut.
        step_timeout: Seconds for one reset or step of a blocking environment; None waits.
        traces: Folder for ``train.jsonl`` and ``validation.jsonl``; None writes none.
    """

    max_turns: int | None = None
    max_tokens_per_turn: int | None = None
    context: Literal["append", "rebuild"] = "append"
    raw: bool = False
    layout: Literal["auto", "episode", "turn"] = "auto"
    wrappers: str = ""
    system_prompt: str | None = None
    on_length_cut: Literal["invalid", "pass"] = "invalid"
    step_timeout: float | None = None
    traces: str | None = None

    @classmethod
    def from_config(cls, config: Any) -> GemOptions:
        """Read the section ``gem`` of a whole verl config.

        Raises:
            ConfigError: An unknown option, or a value that is none of those allowed.
        """
        given = dict(config.get("gem") or {})
        names = [field.name for field in fields(cls)]
        for name in given:
            if name not in names:
                raise ConfigError(
                    f"gem.{name} is no option.{suggest(str(name), names)} There are: {', '.join(names)}"
                )
        options = cls(**given)
        for name, allowed in (
            ("context", ("append", "rebuild")),
            ("layout", ("auto", "episode", "turn")),
            ("on_length_cut", ("invalid", "pass")),
        ):
            if getattr(options, name) not in allowed:
                raise ConfigError(
                    f"gem.{name}={getattr(options, name)!r}: expected one of {', '.join(allowed)}"
                )
        for name in ("max_turns", "max_tokens_per_turn"):
            value = getattr(options, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise ConfigError(f"gem.{name}={value!r}: expected a whole number of at least 1, or null")
        if options.context == "rebuild" and options.layout == "episode":
            raise ConfigError(
                "gem.layout=episode needs gem.context=append: the turns of a rebuilt context share no prefix"
            )
        return options

    @property
    def row_per_turn(self) -> bool:
        """Whether each turn is a row of the batch."""
        return self.layout == "turn" or self.context == "rebuild"

    def make_context(self, tokenizer: Any, template_kwargs: Mapping[str, Any] | None = None) -> Context:
        """The context of all episodes; `template_kwargs` are verl's ``data.apply_chat_template_kwargs``."""
        system, extra = self.system_prompt, dict(template_kwargs or {})
        if self.context == "append":
            return AppendContext(tokenizer, system_prompt=system, template_kwargs=extra)
        return RebuildContext(tokenizer, raw=self.raw, system_prompt=system, template_kwargs=extra)


def estimator_options(algorithm: Any, name: str) -> dict[str, Any]:
    """The options ``algorithm.<name>``, checked.

    Raises:
        ConfigError: An unknown option, or one that the rest of `algorithm` contradicts.
    """
    options = dict(_get(algorithm, name) or {})
    for key in options:
        if key not in ESTIMATOR_OPTIONS[name]:
            known = ", ".join(ESTIMATOR_OPTIONS[name]) or "none"
            raise ConfigError(f"algorithm.{name}.{key} is no option of {name}; there are: {known}")
    correction = _get(algorithm, "rollout_correction")
    if correction and _get(correction, "rollout_rs") and not _get(correction, "bypass_mode"):
        raise ConfigError(
            f"algorithm.rollout_correction.rollout_rs={_get(correction, 'rollout_rs')} takes tokens out of "
            "the response mask before the advantage is computed, which would cut turns in pieces; with "
            f"{name} use rollout_is (weights) instead, or bypass_mode=True"
        )
    scope = options.pop("scope", "collected")
    if scope not in ("collected", "trained"):
        raise ConfigError(f"algorithm.{name}.scope={scope!r}: expected 'collected' or 'trained'")
    filters = _get(algorithm, "filter_groups")
    if name == "rebn" and scope == "collected" and filters and _get(filters, "enable"):
        raise ConfigError(
            "algorithm.filter_groups drops groups before rebn sees them, so its statistics cannot be those "
            "of all turns that were collected; +algorithm.rebn.scope=trained takes those of the rest"
        )
    if name == "gem_grpo" and not _get(algorithm, "norm_adv_by_std_in_grpo", True):
        raise ConfigError(
            "algorithm.norm_adv_by_std_in_grpo=False has no effect on gem_grpo; gem_rloo does not divide by "
            "a standard deviation"
        )
    return options


def check_config(config: Any, *, trainer_mode: str) -> GemOptions:
    """Refuse what cannot be honoured, before any engine starts.

    Args:
        config: The whole verl config.
        trainer_mode: The one that runs.

    Raises:
        ConfigError: Says what and why.
    """
    if not config.trainer.use_v1:
        raise ConfigError(
            "trainer.use_v1=False: gem_verl works with verl's v1 trainer only; leave it at True"
        )
    options = GemOptions.from_config(config)
    name = str(config.algorithm.adv_estimator)
    if name in ESTIMATORS:
        estimator_options(config.algorithm, name)
        gamma = float(config.algorithm.gamma)
        if not 0 <= gamma <= 1:
            raise ConfigError(f"algorithm.gamma={gamma}: expected a discount from 0 to 1")
    else:
        from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY

        if name not in ADV_ESTIMATOR_REGISTRY:
            close = suggest(name, ADV_ESTIMATOR_REGISTRY)
            raise ConfigError(f"algorithm.adv_estimator={name} is registered nowhere.{close}")
    if options.row_per_turn:
        if trainer_mode != TRAINER_MODE:
            raise ConfigError(
                f"rows of single turns need trainer.v1.trainer_mode={TRAINER_MODE}, which knows what rows "
                f"make up an episode; with {trainer_mode!r} use gem.context=append and gem.layout=episode"
            )
        if name not in ESTIMATORS:
            raise ConfigError(
                f"algorithm.adv_estimator={name} would take each turn for an episode; with rows of single "
                f"turns use one of {', '.join(ESTIMATORS)}"
            )
    return options


def _get(section: Any, key: str, default: Any = None) -> Any:
    """A value of a DictConfig, a dict, or one of verl's config dataclasses, which all have `get`."""
    return section.get(key, default) if section is not None else default
