"""PPO with different critics, compared with ReBN."""

from studies import GUESS, SHORT_RUN, Study

_PPO = {"estimator": "gae"}

STUDY = Study(
    title="Critics",
    question="Which critic makes PPO as good as ReBN?",
    tasks={"guess": GUESS},
    arms={
        "ReBN": {"estimator": "rebn"},
        "PPO": _PPO,
        "PPO, lambda 1": {**_PPO, "estimator_options": {"lam": 1.0}},
        "PPO, lambda 0.5": {**_PPO, "estimator_options": {"lam": 0.5}},
        "PPO, value weight 0.05": {**_PPO, "value_weight": 0.05},
        "PPO, value weight 5": {**_PPO, "value_weight": 5.0},
        "PPO, warm-up": {**_PPO, "critic_warmup": 5},
        "PPO, separate": {**_PPO, "critic": "model"},
        "PPO, separate, warm-up": {**_PPO, "critic": "model", "critic_warmup": 5},
        "PPO, normalized": {"estimator": "normalized_gae"},
    },
    baseline="ReBN",
    options={**SHORT_RUN, "gamma": 0.9, "kl": 0.0},
    grid={"learning_rate": (0.0015, 0.005, 0.015)},
    panels=(
        ("gem/success", "success"),
        ("gem/return", "return"),
        ("train/explained_variance", "variance of the returns that the critic explains"),
    ),
    notes=(
        "The critic is a linear function of the policy's last hidden state, or of the last hidden state of a "
        "separate model (`separate`), which starts from the same weights. In the first five steps of "
        "`warm-up`, only the critic learns. `normalized` normalizes the advantages over each batch.",
    ),
)
