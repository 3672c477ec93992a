"""Every check of the arguments that can run before a process starts."""

from __future__ import annotations

import json
import math
import os
import time

from oat.args import default_args_validation

from gem_core._util.checks import check_int, check_number, expected
from gem_core.errors import ConfigError
from gem_core.rollout._options import read_object
from gem_core.trainers._options import reject_changed
from gem_oat import _SUPPORTED
from gem_oat._args import Args, dataset_rows
from gem_oat._tasks import progress_of, task_order

NO_IMAGES = "Oat's rows have no place for pixels; train on it with verl, OpenRLHF, or `gem-core train`"
MAX_ROWS = 1_000_000
"""Limit on the rows of a run: Oat lists the whole dataset in memory before the first step."""
SIZES = (
    "gpus", "num_groups", "rollout_batch_size", "rollout_batch_size_per_device", "train_batch_size",
    "train_batch_size_per_device", "sync_params_every", "logging_steps", "num_ppo_epochs",
    "generate_max_length", "max_train", "max_eval", "eval_n", "max_model_len", "length_norm_constant",
    "zpg", "lora_alpha", "shm_size_mb", "max_save_num", "max_save_mem",
)  # fmt: skip
"""Flags with a whole number of at least 1. With a smaller one, Oat divides by zero, or does nothing."""
OFF_OR_SIZE = {"top_k": -1, "eval_top_k": -1, "eval_batch_size": -1, "lora_rank": 0}
"""Flags with a whole number of at least 1, or the value that turns them off."""
POSITIVE = ("temperature", "top_p", "eval_top_p", "tis_c", "vllm_gpu_ratio", "max_step_adjustment")
"""Flags with a number above 0."""
NOT_NEGATIVE = (
    "eval_temperature", "cliprange", "cliprange_value", "vf_coef", "beta", "learning_rate",
    "critic_learning_rate", "max_norm", "lr_warmup_ratio", "l2",
)  # fmt: skip
"""Flags with a number of at least 0. Oat ignores a negative one, or turns the sign of a gradient around."""
AT_MOST_1 = ("top_p", "eval_top_p", "vllm_gpu_ratio", "lr_warmup_ratio")
BELOW_1 = ("adam_beta_1", "adam_beta_2", "lora_dropout")
"""Flags with a number of at least 0 and below 1."""
PAPER = {"ddof": 0, "eps": 1e-9, "scope": "trained"}


def prepare(args: Args) -> Args:
    """Check everything that can be checked before the start, and set the options that depend on others.

    Raises:
        GemError: An option is not supported. The message is one line that says why.
    """
    _check_numbers(args)
    _check_environments(args)
    _check_estimator(args)
    _reject_unsupported(args)
    _check_batch(args)
    args.eval_generate_max_length = args.eval_generate_max_length or args.generate_max_length
    if args.rnd_seed:  # Oat would draw a seed in every process
        args.seed, args.rnd_seed = time.time_ns() % 2**32, False
    try:
        validated: Args = default_args_validation(args)
    except (AssertionError, ValueError) as error:  # Oat raises either one for a bad value
        raise ConfigError(f"Oat rejects these arguments: {error}") from error
    if validated.max_queries > MAX_ROWS:
        raise ConfigError(
            f"--max-train={validated.max_train}: expected at most {MAX_ROWS}; Oat lists all turns in memory"
        )
    # Oat counts one pass over the rows of a step when it plans the learning rate.
    validated.max_step_adjustment *= validated.num_ppo_epochs
    validated.critic_max_step_adjustment *= validated.num_ppo_epochs
    done = progress_of(validated)
    task_order(validated, 0, dataset_rows(validated), done)  # raises the errors of resuming
    _check_transfers(validated, done.steps)
    return validated


def _check_numbers(args: Args) -> None:
    """Check the numbers that Oat would take without an error."""
    for name in SIZES:
        if getattr(args, name) is not None:  # no limit
            check_int(_flag(name), getattr(args, name), 1)
    for name, off in OFF_OR_SIZE.items():
        if (value := getattr(args, name)) != off and value < 1:
            raise expected(_flag(name), value, f"a whole number of at least 1, or {off}")
    check_int("--eval-generate-max-length", args.eval_generate_max_length, 0)
    check_int("--group-rank", args.group_rank, 0, args.num_groups - 1)
    check_int("--num-gpus-per-actor", args.num_gpus_per_actor, 1, args.learners)
    check_int("--zero-stage", args.zero_stage, 0, 3)
    for name in (*POSITIVE, *NOT_NEGATIVE):
        value, high = getattr(args, name), 1 if name in AT_MOST_1 else None
        if value is None or (value == math.inf and high is None):  # no limit
            continue
        if name in POSITIVE:
            check_number(_flag(name), value, above=0, high=high)
        else:
            check_number(_flag(name), value, 0, high)
    for name in BELOW_1:
        if not 0 <= (value := getattr(args, name)) < 1:
            raise expected(_flag(name), value, "a number of at least 0 and below 1")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _check_transfers(args: Args, done: int) -> None:
    """Check that engines keep the weights of the last transfer, which an evaluation or a start replaces."""
    per_transfer = args.sync_params_every * args.rollout_batch_size
    batches = per_transfer // (args.learners * args.rollout_batch_size_per_device)
    if args.sync_params_every == 1:
        return
    option = f"--sync-params-every={args.sync_params_every}"
    if args.eval_steps > 0 and (args.eval_steps % batches or args.eval_query_interval > 0):
        raise ConfigError(
            f"--eval-steps={args.eval_steps} with {option}: an evaluation would give the engines newer "
            "weights than training samples with, and Oat cannot restore the old ones; set --eval-steps to a "
            f"multiple of {batches} without --eval-query-interval, or omit one of the two"
        )
    if done % batches:
        raise ConfigError(
            f"--resume-dir with {option}: the checkpoint of batch {done} lacks the weights that the engines "
            f"had, which are those of batch {done - done % batches}; resume from a multiple of {batches}"
        )


def _check_environments(args: Args) -> None:
    if not args.env_id:
        raise ConfigError("--env-id is missing: name at least one environment; `gem-core envs` lists them")
    options = args.rollout_options()
    given = (options.system_prompt, options.chat_template, options.date)
    if options.raw and (any(value is not None for value in given) or options.template_kwargs):
        raise ConfigError(
            "--raw passes the observation on unchanged; omit --system-prompt, --chat-template, --date, and "
            "--template-kwargs"
        )
    if options.raw and options.context != "rebuild":
        raise ConfigError("--raw needs --context rebuild; other contexts apply the template")
    for source in (*args.sources, *args.eval_sources):
        source.check_buildable(options.wrappers, no_images=NO_IMAGES)
    check_int("--num-env", args.num_env, 1)
    check_int("--group-size", args.group_size, 1)


def _check_estimator(args: Args) -> None:
    if args.paper_rebn:
        options = read_object(args.estimator_options, "--estimator-options")
        for name, value in PAPER.items():
            if options.get(name, value) != value:
                raise ConfigError(
                    f"--estimator-options: {name}={options[name]} contradicts --paper-rebn, with {value}"
                )
        args.estimator_options = json.dumps({**options, **PAPER})
    choice = args.choose_estimator()
    if ("values" in choice.needs) != (args.critic_type == "ppo"):
        raise ConfigError(
            f"--critic-type={args.critic_type}: for a critic, set --critic-type ppo and --estimator gae"
        )
    choice.check_group_size("--group-size", args.group_size)


def _reject_unsupported(args: Args) -> None:
    """Reject options of Oat that would silently change the advantages, or have no effect here."""
    critic, defaults = args.critic_type == "ppo", vars(Args())
    chosen = ["always", "with a critic" if critic else "without a critic"]
    chosen += ["several groups"] * (args.num_groups > 1) + ["without drgrpo"] * (args.critic_type != "drgrpo")
    reasons = [item for name in chosen for item in _SUPPORTED.read_table("unsupported.json", name).items()]
    settings = [(name, defaults[name], reason) for reason, names in reasons for name in names.split()]
    reject_changed(args, settings, prefix="--", written=lambda name: name.replace("_", "-"))
    if critic and args.zero_stage == 3:
        raise ConfigError(
            "--zero-stage=3: expected at most 2 with a critic; ranks evaluate different numbers of states"
        )
    if args.temperature != 1 and args.tis_c is not None and os.environ.get("VLLM_USE_V1") != "0":
        # The learner divides logits by the temperature. So did vLLM's first engine, but V1 reports log-probs
        # of the logits before that division.
        raise ConfigError(
            f"--temperature={args.temperature} needs VLLM_USE_V1=0 in the environment, or --tis-c None, "
            "which would weight by the difference from the log-probs of vLLM's V1 engine, at temperature 1"
        )


def _check_batch(args: Args) -> None:
    """Check the batch sizes. Oat checks them only after the models are loaded, or not at all."""
    learners = args.learners
    for size in ("rollout_batch_size", "train_batch_size"):
        flag, per_device = _flag(size), getattr(args, f"{size}_per_device")
        if getattr(args, size) % (learners * per_device):
            raise ConfigError(
                f"{flag}={getattr(args, size)} is not a multiple of {learners} learners x "
                f"{flag}-per-device={per_device}"
            )
    if args.use_fused_lm_head and args.train_batch_size_per_device > 1:
        # FusedLinear flattens hidden[:, :-1] outside of autograd, which copies the tensor if it has several
        # rows.
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
            "per learner, and a buffer of any other length would repeat or lose some; omit the flag"
        )
    args.pi_buffer_maxlen_per_device = rows
