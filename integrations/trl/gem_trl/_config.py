"""`GemConfig`: the options of GEM in a run of TRL, and the incompatible settings of TRL."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from gem_core._util.checks import check_int, check_number, expected
from gem_core.advantages._declaration import Need
from gem_core.errors import ConfigError
from gem_core.rollout._limits import TokenLimit
from gem_core.trainers import EstimatorChoice, PluginOptions
from gem_core.trainers._options import AdvantageOptions, option_at, reject_changed
from gem_core.trainers._weights import RowAverage
from gem_trl import _SUPPORTED

OWN_ROLLOUTS: tuple[Need, ...] = ("group_ids", "lengths")
"""What TRL's own rollouts supply to an estimator."""
GROUPS = "belongs to TRL's own advantages, which are replaced; "
SAMPLER = "has no effect on the sampler that plays the episodes; use vLLM, or omit it"
SETTINGS = (
    ("scale_rewards", "group", f"{GROUPS}use the options of the estimator"),
    ("multi_objective_aggregation", "sum_then_normalize", f"{GROUPS}omit it"),
    ("mask_truncated_completions", False, "would drop episodes after they counted in the statistics"),
)
"""Settings of `GRPOConfig` with their neutral values, for every rollout."""
ONLY_TASKS = (
    ("reward_weights", None, "the return of an episode is its only reward; weigh rewards in a wrapper"),
)
"""Further settings for a run without reward functions, in the same form."""
GEM_SETTINGS = (
    ("vllm_mode", "colocate", "gem_trl plays episodes with vLLM in the training process only"),
    ("vllm_tensor_parallel_size", 1, "gem_trl supports one vLLM engine per process only"),
    ("vllm_enable_sleep_mode", False, "TRL wakes vLLM only in its own rollouts"),
    ("vllm_structured_outputs_regex", None, "would change the responses of every turn"),
)
"""Further settings for episodes that GEM plays with vLLM, in the same form."""
SAMPLER_SETTINGS: tuple[tuple[str, Any, str], ...] = (
    ("min_p", 0.0, SAMPLER),
    ("repetition_penalty", 1.0, SAMPLER),
    ("generation_kwargs", ({},), SAMPLER),
    ("cache_implementation", None, SAMPLER),
    ("use_transformers_continuous_batching", False, SAMPLER),
    ("use_transformers_paged", False, SAMPLER),
    ("ds3_gather_for_generation", True, "the sampler needs the gathered weights of ZeRO-3"),
    ("fsdp", ("", [], False), "the sampler needs whole weights; use DDP or ZeRO"),
)
"""Further settings for episodes that GEM plays without vLLM, in the same form."""

AVERAGES: dict[str, RowAverage] = {
    **dict.fromkeys(("grpo", "sapo"), "row means"),
    **dict.fromkeys(("dr_grpo", "luspo"), "row sums"),
}
"""What a ``loss_type`` of TRL averages over, where that is not the tokens."""
_ROWS = "with several rows per episode (another gem.context than append, or gem.harness), "
SEVERAL_ROWS = (
    (
        "loss_type",
        ("grpo", "sapo", "dr_grpo", "luspo", "dapo", "cispo"),
        f"{_ROWS}the weight of a token would depend on the rows; use dapo, cispo, grpo, or dr_grpo",
    ),
    ("importance_sampling_level", "token", f"{_ROWS}a ratio of whole rows would depend on them; use token"),
    ("off_policy_mask_threshold", None, f"{_ROWS}a mask of whole rows would depend on them; omit it"),
)
"""Further settings if an episode may have several rows, in the same form."""
VLLM_ROWS = (
    (
        "vllm_importance_sampling_mode",
        ("token_truncate", "token_mask"),
        f"{_ROWS}a ratio of whole rows would depend on them; use token_truncate or token_mask",
    ),
)
"""The same with vLLM's importance ratio."""
MEAN_OVER_ROWS = (
    (
        "beta",
        0.0,
        f"{_ROWS}a penalty averages over rows, with no advantage to correct it; use loss_type=dapo",
    ),
)
"""The same for the losses of `AVERAGES`."""

REQUEST_ARGUMENTS = {
    **dict.fromkeys(("n", "best_of", "output_kind"), "a response is one sample"),
    **dict.fromkeys(("max_tokens", "seed"), "gem_trl sets it for each response"),
    **dict.fromkeys(("logprobs", "detokenize"), "gem_trl sets it"),
    "truncate_prompt_tokens": "would change the prompt of every turn",
    "structured_outputs": "would change the responses of every turn",
}
"""Arguments of vLLM that ``generation_kwargs`` must not set, with the reason."""
DISTRIBUTION: dict[str, tuple[Any, ...]] = {
    "top_p": (1.0,),
    "top_k": (0, -1),
    "min_p": (0.0,),
    "repetition_penalty": (1.0,),
    "frequency_penalty": (0.0,),
    "presence_penalty": (0.0,),
    "min_tokens": (0,),
    **dict.fromkeys(("logit_bias", "bad_words", "allowed_token_ids"), (None, {}, [])),
}
"""Settings of sampling with the values that leave the policy's distribution unchanged."""


@dataclass(frozen=True)
class GemConfig(AdvantageOptions, TokenLimit, PluginOptions):
    """Options of the rollout and of the estimator.

    TRL's ``max_completion_length`` limits everything after the first prompt, observations included.
    ``template_kwargs`` are used in addition to TRL's ``chat_template_kwargs``.
    """

    @classmethod
    def given(cls, gem: object) -> GemConfig:
        """Return the argument `gem` of a user; None is the defaults.

        Raises:
            ConfigError: It is no `GemConfig`.
        """
        if not isinstance(gem, GemConfig | None):
            raise expected("gem", gem, "a GemConfig, such as GemConfig(max_turns=8)", optional=True)
        return gem or cls()

    def checked(self, prefix: str = "gem.") -> GemConfig:
        """Return the options after checking them and importing the user's modules.

        Raises:
            GemError: A value is not supported; the message names it.
        """
        options = type(self).read(asdict(self), prefix)
        options.choose_estimator(played=True, prefix=prefix)
        return options

    @property
    def has_several_rows(self) -> bool:
        """Whether an episode may have more than one row."""
        return self.context != "append" or self.harness is not None

    def one_row(self, reason: str, prefix: str = "gem.") -> GemConfig:
        """Return the options after rejecting contexts whose episodes may need several rows.

        Raises:
            ConfigError: Contexts do not only append; the message gives the reason.
        """
        if self.context != "append":
            raise ConfigError(
                f"{prefix}context={self.context}: an episode may have several rows, but {reason}; use append"
            )
        return self

    def choose_estimator(self, *, played: bool, prefix: str = "gem.") -> EstimatorChoice:
        """Return the estimator with its options.

        Args:
            played: Whether GEM plays the episodes; the states of TRL's own rollouts are not known.
            prefix: Text that a user writes before the name of an option, for messages.

        Raises:
            GemError: There is no such estimator or option, or TRL does not supply what the estimator needs.
        """
        return self.read_estimator(prefix, trainer=_SUPPORTED, supplies=None if played else OWN_ROLLOUTS)


def changed_distribution(args: Any) -> str:
    """Return the first setting that lets responses come from another distribution than the policy's.

    Returns:
        The setting with its value; empty without such a setting.
    """
    given = option_at(args, "generation_kwargs", {})
    for name, neutral in {**DISTRIBUTION, "temperature": (args.temperature,)}.items():
        value = given.get(name, option_at(args, name, neutral[0]))
        if value not in neutral:
            return f"{name}={value}"
    return ""


def check_args(
    args: Any, choice: EstimatorChoice, *, played: bool, own_rows: bool, several_rows: bool = False
) -> None:
    """Before a model is loaded, reject settings of TRL that would have no effect or a wrong effect.

    Args:
        args: A `GRPOConfig`.
        choice: The estimator.
        played: Whether GEM plays the episodes.
        own_rows: Whether there are reward functions for rows of the user's own.
        several_rows: Whether an episode may have several rows.

    Raises:
        ConfigError: A setting is not supported; the message names it and the reason.
    """
    check_number("temperature", args.temperature, above=0)  # TRL divides by it
    check_number("top_p", args.top_p, above=0, high=1)
    for name in ("epsilon", "epsilon_high", "delta", "beta", "learning_rate", "max_grad_norm"):
        check_number(name, option_at(args, name), 0, optional=True)
    for name in ("num_iterations", "max_completion_length", "gradient_accumulation_steps"):
        check_int(name, option_at(args, name), 1, optional=True)
    choice.check_group_size("num_generations", args.num_generations)
    reject_changed(args, SETTINGS)
    if not own_rows:
        reject_changed(args, ONLY_TASKS)
    if not played:
        return
    uses_vllm = option_at(args, "use_vllm", False)
    if several_rows:
        reject_changed(args, SEVERAL_ROWS)
        if args.loss_type in AVERAGES:
            reject_changed(args, MEAN_OVER_ROWS)
    reject_changed(args, GEM_SETTINGS if uses_vllm else SAMPLER_SETTINGS)
    given = option_at(args, "generation_kwargs", {})
    for name in given:
        if name in REQUEST_ARGUMENTS:
            raise ConfigError(f"generation_kwargs: {name}: {REQUEST_ARGUMENTS[name]}; omit it")
    if given.get("ignore_eos"):
        raise ConfigError(
            "generation_kwargs: ignore_eos: a response would go on after its end, until the limit cuts it; "
            "omit it"
        )
    corrects = uses_vllm and option_at(args, "vllm_importance_sampling_correction", False)
    if several_rows and corrects:
        reject_changed(args, VLLM_ROWS)
    if corrects and (changed := changed_distribution(args)):
        raise ConfigError(
            f"{changed}: vLLM's log-probs are those of the changed distribution, TRL's are the policy's, and "
            "vllm_importance_sampling_correction would weigh each token by the ratio of the two, so that the "
            "weight of a long episode is near 0; omit it, or set vllm_importance_sampling_correction=False"
        )
