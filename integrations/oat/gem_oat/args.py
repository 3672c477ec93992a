"""Oat's flags, GEM's flags beside them, and what is refused.

Everything is checked by `prepare` before any process is started.
"""

from __future__ import annotations

import importlib
import json
import math
import os
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from oat.algorithms.ppo import PPOArgs
from oat.args import default_args_validation

from gem_core.advantages.registry import Estimator, get_estimator
from gem_core.errors import ConfigError
from gem_core.rollout import RolloutOptions
from gem_core.rollout.pool import MAX_ENV_RETRIES
from gem_core.tasks import EnvChoice

NO_IMAGES = "Oat's rows have no place for pixels; train on it with verl, OpenRLHF or `gem-core train`"
MAX_ROWS = 1_000_000
"""Oat lists the whole data set in memory before the first step."""
PAPER = {"adv_ddof": 0, "adv_eps": 1e-9, "adv_scope": "trained"}

# What the comments below say is what `--help` shows, as in Oat's own dataclass.


@dataclass
class Args(PPOArgs):  # type: ignore[misc]
    """Oat's arguments for PPO and GEM's."""

    # Environments to train on: ID, 'ID(key=value)', or either with =WEIGHT for a mix.
    env_id: list[str] = field(default_factory=list)
    # Environments to evaluate on; none: those of env_id.
    eval_env_id: list[str] = field(default_factory=list)
    # Episodes at once in each actor.
    num_env: int = 4
    # Episodes per task; grpo and rloo compare them with each other.
    group_size: int = 1
    # Most turns of an episode; none: the environment's own limit.
    max_turns: int | None = None
    # 'append' keeps what was sampled, 'rebuild' makes each prompt anew from the observation.
    context: Literal["append", "rebuild"] = "append"
    # In rebuild contexts: the observation has the chat template already.
    raw: bool = False
    # Wrappers around every environment, such as 'concat,time_limit(max_turns=5)'.
    wrappers: str = ""
    # First message of each conversation; none leaves it to the chat template.
    system_prompt: str | None = None
    # Variables for the chat template, as JSON: '{"enable_thinking": false}'.
    chat_template_kwargs: str = "{}"
    # What the environment gets for a response cut by the length limit: nothing, or the text as it is.
    on_length_cut: Literal["invalid", "pass"] = "invalid"
    # Seconds for the constructor, a reset or step of a blocking environment, and close; none waits.
    step_timeout: float | None = None
    # An episode whose environment failed: 'mask' leaves it out, 'retry' first plays it again.
    on_env_error: Literal["mask", "retry"] = "mask"
    # Most attempts of 'retry' after the first one.
    max_env_retries: int = MAX_ENV_RETRIES
    # Folder for train.jsonl and eval.jsonl; none writes none.
    traces: str | None = None
    # Modules to import in every process, such as one that registers environments.
    modules: list[str] = field(default_factory=list)

    # Advantage estimator: rebn, reinforce, grpo, rloo, or a registered one.
    estimator: str = "rebn"
    # Options of the estimator; none: its own default.
    adv_ddof: int | None = None
    adv_eps: float | None = None
    adv_min_std: float | None = None
    # Turns that the statistics of rebn are taken over: all that were collected, or those trained on.
    adv_scope: Literal["collected", "trained"] = "collected"
    # ReBN exactly as in the paper: --adv-ddof 0 --adv-eps 1e-9 --adv-scope trained.
    paper_rebn: bool = False
    # With critic_type drgrpo: what the sum over a response's tokens is divided by; none: generate_max_length.
    length_norm_constant: int | None = None

    # Oat's own, with defaults that fit.
    algo: Literal["PPO"] = "PPO"
    oracle: str = ""
    prompt_data: str = ""
    num_samples: int = 1
    # Turns that a learner keeps; 0: as many as an update takes, and no other number is possible.
    pi_buffer_maxlen_per_device: int = 0

    @property
    def learners(self) -> int:
        """Learner processes in all groups, as Oat places them."""
        per_group = self.gpus if self.collocate else self.gpus - self.gpus // 2
        return int(per_group * self.num_groups)

    @property
    def sources(self) -> list[EnvChoice]:
        """The training mix."""
        return [EnvChoice.parse(text) for text in self.env_id]

    @property
    def eval_sources(self) -> list[EnvChoice]:
        """What evaluation plays."""
        return [EnvChoice.parse(text) for text in self.eval_env_id or self.env_id]

    def rollout_options(self) -> RolloutOptions:
        """How episodes are played.

        Raises:
            ConfigError: A value is none of those allowed.
        """
        names = [field.name for field in fields(RolloutOptions) if field.name != "max_tokens_per_turn"]
        given = {name: getattr(self, name) for name in names}
        return RolloutOptions.read({**given, "max_tokens_per_turn": self.generate_max_length}, prefix="--")

    def template_kwargs(self) -> dict[str, Any]:
        """Variables for the chat template.

        Raises:
            ConfigError: Not a JSON object.
        """
        try:
            value = json.loads(self.chat_template_kwargs)
        except ValueError as error:
            raise ConfigError(f"--chat-template-kwargs is not JSON: {error}") from None
        if not isinstance(value, dict):
            raise ConfigError(f"--chat-template-kwargs={self.chat_template_kwargs}: expected a JSON object")
        return value

    def estimator_options(self) -> tuple[Estimator, dict[str, Any]]:
        """The estimator and its keyword arguments besides gamma.

        Raises:
            UnknownName: No such estimator.
            ConfigError: An option that it does not have.
        """
        estimator = get_estimator(self.estimator)
        given = {"ddof": self.adv_ddof, "eps": self.adv_eps, "min_std": self.adv_min_std}
        options = {name: value for name, value in given.items() if value is not None}
        estimator.check_options(options, prefix="--adv-")
        return estimator, options


def import_modules(args: Args) -> None:
    """Import what ``--modules`` names, in each process that plays or learns.

    Raises:
        ConfigError: There is no such module.
    """
    for name in args.modules:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            raise ConfigError(f"--modules {name}: {error}; is its folder on PYTHONPATH?") from error


def prepare(args: Args) -> Args:
    """Check everything that can be known now, and fill in what follows from it.

    Raises:
        GemError: Says in one line what cannot be honoured and why.
    """
    import_modules(args)
    _check_environments(args)
    _check_estimator(args)
    _refuse(args)
    _check_batch(args)
    try:
        validated: Args = default_args_validation(args)
    except (AssertionError, ValueError) as error:  # it tells assertions from bad values nowhere
        raise ConfigError(f"Oat refuses these arguments: {error}") from error
    if validated.max_queries > MAX_ROWS:
        raise ConfigError(
            f"--max-train={validated.max_train}: more than {MAX_ROWS} turns; Oat lists them all"
        )
    # Oat counts one pass over the rows of a step when it plans the learning rate.
    validated.max_step_adjustment *= validated.num_ppo_epochs
    return validated


def dataset_rows(args: Args) -> int:
    """Rows of the whole run: ``--max-train`` turns, in full batches. With this length Oat's schedules fit."""
    return math.ceil(int(args.max_queries) / int(args.rollout_batch_size)) * int(args.rollout_batch_size)


def _check_environments(args: Args) -> None:
    if not args.env_id:
        raise ConfigError("--env-id is missing: name at least one environment; `gem-core envs` lists them")
    options = args.rollout_options()
    if options.raw and (options.system_prompt is not None or args.template_kwargs()):
        raise ConfigError(
            "--raw takes the observation as it is; leave out --system-prompt and template kwargs"
        )
    if options.raw and options.context != "rebuild":
        raise ConfigError("--raw needs --context rebuild; in append contexts the template is applied once")
    args.template_kwargs()
    for source in (*args.sources, *args.eval_sources):
        source.check_buildable(options.wrappers, no_images=NO_IMAGES)
    if args.num_env < 1 or args.group_size < 1:
        raise ConfigError(
            f"--num-env={args.num_env} --group-size={args.group_size}: expected at least 1 each"
        )


def _check_estimator(args: Args) -> None:
    if args.paper_rebn:
        for name, value in PAPER.items():
            if getattr(args, name) not in (None, "collected", value):
                raise ConfigError(f"--{name.replace('_', '-')} contradicts --paper-rebn, where it is {value}")
            setattr(args, name, value)
    estimator, _ = args.estimator_options()
    if "values" in estimator.needs:
        raise ConfigError(f"--estimator={estimator.name} needs a critic of turns, which Oat does not have")
    if "group_ids" in estimator.needs and args.group_size < 2:
        raise ConfigError(
            f"--estimator={estimator.name} compares the episodes of a task; "
            f"--group-size={args.group_size} leaves nothing to compare"
        )
    if not estimator.uses_stats and args.adv_scope != "collected":
        raise ConfigError(f"--adv-scope={args.adv_scope} has no effect on {estimator.name}")
    if not 0 <= args.gamma <= 1:
        raise ConfigError(f"--gamma={args.gamma}: expected a discount per turn from 0 to 1")


def _refuse(args: Args) -> None:
    """Options of Oat that would change the advantages unseen, or have no effect here."""
    for name, fine, why in (
        ("critic_type", ("drgrpo", "grpo"), "the advantages are those of --estimator; it has no critic"),
        (
            "kl_penalty_coef",
            (0,),
            "Oat adds the penalty up row by row, and a row is a turn, so that it would never reach the "
            "returns of earlier turns; use --beta, the penalty in the loss",
        ),
        ("reward_scale", (1,), "it would scale the returns but not their statistics; scale the rewards"),
        ("whiten_adv", (False,), "the advantages are those of --estimator"),
        ("whiten_rewards", (False,), "the advantages are those of --estimator"),
        ("non_stop_penalty", (0,), "the environment pays; see --on-length-cut for what it gets"),
        ("non_stop_fixed_reward", (None,), "the environment pays; see --on-length-cut for what it gets"),
        ("num_samples", (1,), "a row is a turn; --group-size is the number of episodes per task"),
        ("num_prompt_epoch", (1,), "tasks do not run out; raise --max-train"),
        ("asynchronous", (False,), "weights would change between the turns of an episode"),
        ("prompt_data", ("",), "tasks are made from --env-id"),
        ("eval_data", ("",), "evaluation plays --eval-env-id"),
        ("oracle", ("",), "the environment pays"),
        ("dry_run", (False,), "Oat 0.2.4 cannot do it for PPO"),
        ("reinforce_update", (False,), "Oat 0.2.4 divides by zero in the metrics of such an update"),
        (
            "resume_dir",
            ("",),
            "Oat loads the checkpoint into its learners only, so that the actors evaluate and play their "
            "first batch with the weights of --pretrain, and the tasks begin anew; give a saved model as "
            "--pretrain",
        ),
    ):
        value = getattr(args, name)
        if value not in fine:
            raise ConfigError(f"--{name.replace('_', '-')}={value} cannot be honoured: {why}")
    if args.temperature != 1 and args.tis_c is not None and os.environ.get("VLLM_USE_V1") != "0":
        # The learner divides logits by the temperature. So did vLLM's first engine; V1 reports log-probs of
        # the logits before that.
        raise ConfigError(
            f"--temperature={args.temperature} needs VLLM_USE_V1=0 in the environment, or --tis-c None: the "
            "log-probs of vLLM's V1 engine are those of temperature 1, and --tis-c would weight by the "
            "difference of the temperatures"
        )


def _check_batch(args: Args) -> None:
    """Oat's own checks come after the models are loaded, or never."""
    learners = args.learners
    per_round = learners * args.rollout_batch_size_per_device
    if args.rollout_batch_size % per_round:
        raise ConfigError(
            f"--rollout-batch-size={args.rollout_batch_size} is not a multiple of {learners} learners x "
            f"--rollout-batch-size-per-device={args.rollout_batch_size_per_device}"
        )
    if args.train_batch_size % (learners * args.train_batch_size_per_device):
        raise ConfigError(
            f"--train-batch-size={args.train_batch_size} is not a multiple of {learners} learners x "
            f"--train-batch-size-per-device={args.train_batch_size_per_device}"
        )
    if args.use_fused_lm_head and args.train_batch_size_per_device > 1:
        # FusedLinear flattens hidden[:, :-1] out of autograd's sight; for more than one row that is a copy.
        raise ConfigError(
            f"--train-batch-size-per-device={args.train_batch_size_per_device} needs --no-use-fused-lm-head: "
            "the fused head of Oat 0.2.4 passes no gradient to the layers below it, except for single rows"
        )
    if args.rollout_batch_size % args.train_batch_size:
        raise ConfigError(
            f"--rollout-batch-size={args.rollout_batch_size} is not a multiple of --train-batch-size="
            f"{args.train_batch_size}; an update would go on in the next step"
        )
    rows = args.rollout_batch_size // learners
    if args.pi_buffer_maxlen_per_device not in (0, rows):
        raise ConfigError(
            f"--pi-buffer-maxlen-per-device={args.pi_buffer_maxlen_per_device}: an update takes {rows} turns "
            "per learner, and a buffer of any other length would repeat or lose some; leave the flag out"
        )
    args.pi_buffer_maxlen_per_device = rows
