"""Oat's flags plus GEM's flags, and every check that can run before a process starts."""

from __future__ import annotations

import json
import math
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro
from oat.algorithms.ppo import PPOArgs
from oat.args import default_args_validation

from gem_core._util.checks import check_int
from gem_core.advantages.registry import get_estimator
from gem_core.errors import ConfigError
from gem_core.tasks import EnvChoice
from gem_core.trainers.estimators import EstimatorChoice, read_estimator
from gem_core.trainers.options import PluginOptions, flag_fields, reject_changed
from gem_oat.tasks import progress_of, task_order

NO_IMAGES = "Oat's rows have no place for pixels; train on it with verl, OpenRLHF or `gem-core train`"
MAX_ROWS = 1_000_000
"""Limit on the rows of a run: Oat lists the whole data set in memory before the first step."""
PAPER = {"adv_ddof": 0, "adv_eps": 1e-9, "adv_scope": "trained"}


FLAGS = [flag for flag in flag_fields(PluginOptions) if flag.name != "max_tokens_per_turn"]
"""The options of GEM that are flags. Oat has a flag for the length of a response."""


def _add_options(args: type[PPOArgs]) -> type[PPOArgs]:
    """Declare `FLAGS` as fields of a dataclass."""
    for flag in FLAGS:
        args.__annotations__[flag.name] = Annotated[flag.kind, tyro.conf.arg(help=flag.help)]
        setattr(args, flag.name, flag.default)
    return args


# The comments below are the texts of `--help`, as in Oat's own dataclass.


@dataclass
@_add_options
class Args(PPOArgs):  # type: ignore[misc]
    """Oat's arguments for PPO and GEM's."""

    # Environments to train on: ID, 'ID(key=value)', or either with =WEIGHT for a mix.
    env_id: list[str] = field(default_factory=list)
    # Environments to evaluate on; none evaluates on those of env_id.
    eval_env_id: list[str] = field(default_factory=list)
    # Episodes that each actor plays at the same time.
    num_env: int = 4
    # Episodes per task; grpo and rloo compare them with each other.
    group_size: int = 1

    # Advantage estimator: rebn, reinforce, grpo, rloo, or a registered one.
    estimator: str = "rebn"
    # Options of the estimator; none takes its default.
    adv_ddof: int | None = None
    adv_eps: float | None = None
    adv_min_std: float | None = None
    # Turns that rebn takes its statistics over: all that were collected, or those trained on.
    adv_scope: Literal["collected", "trained"] = "collected"
    # ReBN exactly as in the paper: --adv-ddof 0 --adv-eps 1e-9 --adv-scope trained.
    paper_rebn: bool = False
    # With critic_type drgrpo: divisor of the sum over a response's tokens; none: generate_max_length.
    length_norm_constant: int | None = None

    # Oat's own flags, with defaults that work here.
    algo: Literal["PPO"] = "PPO"
    oracle: str = ""
    prompt_data: str = ""
    num_samples: int = 1
    # Tokens of a response in evaluation; 0 takes generate_max_length.
    eval_generate_max_length: int = 0
    # Turns that a learner keeps; 0 keeps as many as an update takes, and no other number is allowed.
    pi_buffer_maxlen_per_device: int = 0

    @property
    def learners(self) -> int:
        """Number of learner processes in all groups, as Oat places them."""
        per_group = self.gpus if self.collocate else self.gpus - self.gpus // 2
        return int(per_group * self.num_groups)

    @property
    def actors(self) -> int:
        """Number of actors in all groups."""
        return self.learners // int(self.num_gpus_per_actor)

    @property
    def sources(self) -> list[EnvChoice]:
        """The training mix."""
        return [EnvChoice.parse(text) for text in self.env_id]

    @property
    def eval_sources(self) -> list[EnvChoice]:
        """The environments of an evaluation."""
        return [EnvChoice.parse(text) for text in self.eval_env_id or self.env_id]

    def rollout_options(self) -> PluginOptions:
        """Import the user's modules and return how episodes are played.

        Raises:
            ConfigError: A value is not allowed.
        """
        options = {flag.name: getattr(self, flag.name) for flag in FLAGS}
        return PluginOptions.read({**options, "max_tokens_per_turn": self.generate_max_length}, prefix="--")

    def choose_estimator(self) -> EstimatorChoice:
        """Return the estimator with its options.

        Raises:
            UnknownName: There is no such estimator.
            ConfigError: The estimator lacks one of the options, or a value is out of range.
        """
        scope = None if self.adv_scope == "collected" else self.adv_scope
        options = {"ddof": self.adv_ddof, "eps": self.adv_eps, "min_std": self.adv_min_std, "scope": scope}
        options["lam"] = self.lam if "lam" in get_estimator(self.estimator).options else None
        return read_estimator(
            self.estimator,
            options,
            gamma=self.gamma,
            prefix="--adv-",
            gamma_option="--gamma",
            names=None,
            supplies=("group_ids", "values"),
        )


def prepare(args: Args) -> Args:
    """Check everything that can be checked before the start, and set the options that depend on others.

    Raises:
        GemError: An option is not supported. The message is one line that says why.
    """
    _check_environments(args)
    _check_estimator(args)
    _reject_unsupported(args)
    _check_batch(args)
    args.eval_generate_max_length = args.eval_generate_max_length or args.generate_max_length
    if args.rnd_seed:  # Oat would draw a seed in every process
        args.seed, args.rnd_seed = time.time_ns() % 2**32, False
    try:
        validated: Args = default_args_validation(args)
    except (AssertionError, ValueError) as error:  # Oat raises either for a bad value
        raise ConfigError(f"Oat rejects these arguments: {error}") from error
    if validated.max_queries > MAX_ROWS:
        raise ConfigError(
            f"--max-train={validated.max_train}: more than {MAX_ROWS} turns; Oat lists them all in memory"
        )
    # Oat counts one pass over the rows of a step when it plans the learning rate.
    validated.max_step_adjustment *= validated.num_ppo_epochs
    validated.critic_max_step_adjustment *= validated.num_ppo_epochs
    task_order(validated, 0, dataset_rows(validated), progress_of(validated))  # raises the errors of a resume
    return validated


def dataset_rows(args: Args) -> int:
    """Return the number of rows of the run: ``--max-train`` turns in full batches, as in Oat's schedules."""
    return math.ceil(int(args.max_queries) / int(args.rollout_batch_size)) * int(args.rollout_batch_size)


def _check_environments(args: Args) -> None:
    if not args.env_id:
        raise ConfigError("--env-id is missing: name at least one environment; `gem-core envs` lists them")
    options = args.rollout_options()
    if options.raw and (options.system_prompt is not None or options.template_kwargs):
        raise ConfigError(
            "--raw passes the observation on unchanged; leave out --system-prompt and --template-kwargs"
        )
    if options.raw and options.context != "rebuild":
        raise ConfigError("--raw needs --context rebuild; in append contexts the template is applied once")
    for source in (*args.sources, *args.eval_sources):
        source.check_buildable(options.wrappers, no_images=NO_IMAGES)
    check_int("--num-env", args.num_env, 1)
    check_int("--group-size", args.group_size, 1)


def _check_estimator(args: Args) -> None:
    if args.paper_rebn:
        for name, value in PAPER.items():
            if getattr(args, name) not in (None, "collected", value):
                raise ConfigError(f"--{name.replace('_', '-')} contradicts --paper-rebn, where it is {value}")
            setattr(args, name, value)
    choice = args.choose_estimator()
    if ("values" in choice.needs) != (args.critic_type == "ppo"):
        raise ConfigError(
            f"--critic-type={args.critic_type}: for a critic, set --critic-type ppo and --estimator gae"
        )
    choice.check_group_size("--group-size", args.group_size)


def _reject_unsupported(args: Args) -> None:
    """Reject options of Oat that would silently change the advantages, or have no effect here."""
    tables = json.loads(Path(__file__).with_name("unsupported.json").read_text(encoding="utf-8"))
    critic, defaults = args.critic_type == "ppo", vars(Args())
    chosen = ["always", "with a critic" if critic else "without a critic"]
    chosen += ["several groups"] * (args.num_groups > 1) + ["without drgrpo"] * (args.critic_type != "drgrpo")
    reasons = [entry for table in chosen for entry in tables[table].items()]
    settings = [(name, defaults[name], reason) for reason, names in reasons for name in names.split()]
    reject_changed(args, settings, prefix="--", written=lambda name: name.replace("_", "-"))
    if critic and args.zero_stage == 3:
        raise ConfigError(
            "--zero-stage=3: not with a critic, because ranks evaluate different numbers of states"
        )
    if args.temperature != 1 and args.tis_c is not None and os.environ.get("VLLM_USE_V1") != "0":
        # The learner divides logits by the temperature. vLLM's first engine did so, too, but V1 reports
        # log-probs of the logits before that division.
        raise ConfigError(
            f"--temperature={args.temperature} needs VLLM_USE_V1=0 in the environment, or --tis-c None, "
            "which would weight by the difference from the log-probs of vLLM's V1 engine, at temperature 1"
        )


def _check_batch(args: Args) -> None:
    """Check the batch sizes. Oat's own checks come after the models are loaded, or never."""
    learners = args.learners
    for size in ("rollout_batch_size", "train_batch_size"):
        flag, per_device = f"--{size.replace('_', '-')}", getattr(args, f"{size}_per_device")
        if getattr(args, size) % (learners * per_device):
            raise ConfigError(
                f"{flag}={getattr(args, size)} is not a multiple of {learners} learners x "
                f"{flag}-per-device={per_device}"
            )
    if args.use_fused_lm_head and args.train_batch_size_per_device > 1:
        # FusedLinear flattens hidden[:, :-1] outside of autograd, which copies it if there are several rows.
        raise ConfigError(
            f"--train-batch-size-per-device={args.train_batch_size_per_device} needs --no-use-fused-lm-head: "
            "the fused head of Oat 0.2.4 passes no gradient to the layers below it, except for single rows"
        )
    if args.rollout_batch_size % args.train_batch_size:
        raise ConfigError(
            f"--rollout-batch-size={args.rollout_batch_size} is not a multiple of --train-batch-size="
            f"{args.train_batch_size}; an update would continue in the next step"
        )
    rows = args.rollout_batch_size // learners
    if args.pi_buffer_maxlen_per_device not in (0, rows):
        raise ConfigError(
            f"--pi-buffer-maxlen-per-device={args.pi_buffer_maxlen_per_device}: an update takes {rows} turns "
            "per learner, and a buffer of any other length would repeat or lose some; leave the flag out"
        )
    args.pi_buffer_maxlen_per_device = rows
