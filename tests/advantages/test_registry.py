"""Estimators are found by name, including third-party ones."""

from __future__ import annotations

import importlib.metadata
import inspect
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from gem_core import advantages
from gem_core._util import entry_points as loading
from gem_core.advantages import Estimator, _registry, estimator, get_estimator, list_estimators
from gem_core.errors import ConfigError, MissingDependency, UnknownName
from tests.advantages.builtin import BUILTIN


@pytest.fixture(autouse=True)
def own_table(monkeypatch):
    # Ignore estimators registered by other tests in this process.
    own = {name: _registry._estimators.get(name) for name in BUILTIN}
    monkeypatch.setattr(_registry._estimators, "_values", own)
    monkeypatch.setattr(loading, "_loaded_groups", loading._loaded_groups - {_registry.ENTRY_POINT_GROUP})


@pytest.mark.parametrize("name", BUILTIN)
def test_builtin_estimators_take_gamma_and_their_needs_by_keyword(name):
    declared = get_estimator(name)
    given = {
        "group_ids": ["a", "a"],
        "env_ids": ["a", "a"],
        "agent_ids": ["a", "a"],
        "baselines": [0.5, 0.5],
        "values": [[0.5], [0.0, 0.5]],
        "lengths": [[3], [1, 2]],
        "state_keys": [["s"], ["s", "t"]],
        "reward_components": [[[1.0, 0.0]], [[0.0, 0.0], [0.5, 0.5]]],
    }
    arguments = {need: given[need] for need in declared.needs}
    advantages_of_turns = declared([[1.0], [0.0, 0.5]], gamma=0.9, **arguments)
    assert [len(episode) for episode in advantages_of_turns] == [1, 2]
    assert declared is getattr(advantages, name)


@pytest.mark.parametrize("name", BUILTIN)
def test_builtin_tensor_forms_take_the_same_keywords(name):
    torch = pytest.importorskip("torch", reason="needs the extra 'train'")
    declared = get_estimator(name)
    given = {
        "group_ids": [0, 0],
        "env_ids": [0, 0],
        "agent_ids": [0, 0],
        "baselines": [0.5, 0.5],
        "values": torch.zeros(2, 3),
        "lengths": None,
        "state_keys": [["s"], ["s"]],
        "reward_components": torch.ones(2, 3, 2),
    }
    arguments = {need: given[need] for need in declared.needs}
    if declared.uses_stats:
        arguments |= {"stats": advantages.ReturnStats(5, 0.0, 1.0), "process_group": None}
    result = declared.tensors(torch.ones(2, 3), torch.ones(2, 3), turn_ids=None, gamma=0.9, **arguments)
    assert result.advantages.shape == (2, 3)


@pytest.mark.parametrize("name", BUILTIN)
def test_a_builtin_estimator_documents_every_argument(name):
    declared = get_estimator(name)
    text, parameters = inspect.getdoc(declared), inspect.signature(declared).parameters
    assert "truncated" in parameters, (
        f"give {name} an argument `truncated`, which masks episodes as in dr_grpo"
    )
    missing = [argument for argument in parameters if f"\n    {argument}: " not in text]
    assert not missing, f"describe {missing} in the docstring of {name}"
    assert all(f"\n{section}:\n" in text for section in ("Args", "Returns", "Raises"))
    assert parameters["gamma"].default == 1.0
    assert {p.kind for p in list(parameters.values())[1:]} == {inspect.Parameter.KEYWORD_ONLY}


@pytest.mark.parametrize("name", BUILTIN)
def test_an_unknown_option_is_answered_with_the_closest(name):
    declared = get_estimator(name)
    declared.check_options(declared.options)
    with pytest.raises(
        ConfigError, match=rf"option 'algorithm.x.dof' of {name}\. (Did you mean|Available: )"
    ):
        declared.check_options(["dof"], prefix="algorithm.x.")


def test_what_the_signature_says():
    rebn, gdpo, rae = map(get_estimator, ("rebn", "gdpo", "rae"))
    assert rebn.needs == ()
    assert rebn.options == ("statistics", "weight", "ddof", "eps", "min_std")
    assert rebn.needs_with({"statistics": "env"}) == ("env_ids",)
    assert rebn.default("statistics") == "batch"
    assert gdpo.needs == ("group_ids", "reward_components")
    assert (rae.needs, rae.options) == (("agent_ids",), ())
    with_stats = {name for name in BUILTIN if get_estimator(name).uses_stats}
    assert {"gdpo", "rebn", "reinforce_plus_plus", "reinforce_plus_plus_baseline"} <= with_stats
    assert not {"dr_grpo", "gae", "grpo", "reinforce", "rloo"} & with_stats
    assert all(get_estimator(name).takes_turns for name in BUILTIN)
    assert not Estimator(plain).takes_turns


def test_only_the_type_of_this_package_asks_for_flat_turns():
    namespace = {}
    exec(
        "from __future__ import annotations\n"
        "TurnRewards = list\nOwnTurnRewards = list\n"
        "def alias(rewards: TurnRewards, *, gamma=1.0): ...\n"
        "def another(rewards: OwnTurnRewards, *, gamma=1.0): ...\n"
        "def unhashable(rewards: [float], *, gamma=1.0): ...\n"
        "from gem_core.advantages._batch import TurnRewards as theirs\n"
        "def flat(rewards: theirs, *, gamma=1.0): ...\n",
        namespace,
    )
    taken = {
        name: Estimator(namespace[name]).takes_turns for name in ("alias", "another", "unhashable", "flat")
    }
    assert taken == {"alias": False, "another": False, "unhashable": False, "flat": True}


@pytest.mark.parametrize("name", BUILTIN)
def test_a_process_receives_an_estimator_as_a_name(name):
    assert pickle.loads(pickle.dumps(get_estimator(name))) is get_estimator(name)


def test_list_holds_the_builtin_ones():
    assert list_estimators() == BUILTIN


def test_an_unknown_name_is_answered_with_the_closest():
    with pytest.raises(UnknownName, match=r"unknown estimator 'ReBM'. Did you mean rebn or remax\?"):
        get_estimator("ReBM")


def test_registering():
    own = estimator("the rewards")(plain)
    assert get_estimator("plain") is own
    assert own.description == "the rewards"
    assert own([[1.0]]) == [[1.0]]
    again = estimator("the same function, in a module that is loaded again")(plain)
    assert get_estimator("plain") is again
    with pytest.raises(ConfigError, match="'rebn' is already registered as <estimator rebn>"):
        estimator(name="rebn")(plain)
    assert get_estimator("rebn") is advantages.rebn


def test_installed_packages_register_through_their_entry_point(monkeypatch):
    def load():
        estimator(name="theirs")(plain)

    class Installed:
        name, dist = "theirs", None

        def load(self):
            return load

    def entry_points(group):
        return [Installed()] if group == "gem_core.advantages" else []

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    assert get_estimator("theirs").function is plain
    assert "theirs" in list_estimators()


def test_without_torch_the_pip_command_is_given(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)  # import torch: ModuleNotFoundError
    for module in ("gem_core.advantages._tensors", "gem_core.advantages._turns"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(MissingDependency, match=r"pip install 'gem-core\[train\]'"):
        get_estimator("rebn").tensors(None, None)


def test_names_and_numpy_forms_load_no_torch():
    code = (
        "import sys; from gem_core.advantages import get_estimator; "
        "get_estimator('rebn')([[1.0], [0.0]]); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def plain(turn_rewards, *, gamma=1.0):
    return turn_rewards


def no_gamma(rewards):
    return rewards


def needs_groups(rewards, *, groups, gamma=1.0):
    return rewards


def learns(rewards, *, values, gamma=1.0):
    return rewards


def by_group(rewards, *, by="batch", group_ids=None, gamma=1.0):
    return rewards


def needs_stats(rewards, *, stats, gamma=1.0):
    return rewards


def needs_bootstrap(rewards, *, bootstrap, gamma=1.0):
    return rewards


def groups_by_position(rewards, group_ids, /, gamma=1.0):
    return rewards


def rewards_by_name(*, turn_rewards, gamma=1.0):
    return turn_rewards


def any_number(*turn_rewards, gamma=1.0):
    return turn_rewards


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (no_gamma, {}, "'no_gamma' takes no argument 'gamma'; its arguments are rewards"),
        (needs_groups, {}, "requires 'groups', which no trainer supplies: expected a default, or a keyw"),
        (needs_stats, {}, "requires 'stats', which no trainer supplies: expected a default, or a keyword"),
        (needs_bootstrap, {}, "requires 'bootstrap', which no trainer supplies"),
        (groups_by_position, {}, "requires 'group_ids', .* or a keyword argument among group_ids"),
        (rewards_by_name, {}, r"expected the turn rewards as its first argument, not 'turn_rewards'"),
        (any_number, {}, r"expected the turn rewards as its first argument, not '\*turn_rewards'"),
        (by_group, {"option_needs": {"by": {"env": "envs"}}}, "unknown need 'envs' of estimator 'by_group'"),
        (by_group, {"option_needs": {"of": {"env": "group_ids"}}}, "unknown option 'of' of estimator"),
        (by_group, {"option_needs": {"by": {"env": "env_ids"}}}, "unknown argument 'env_ids' of estimator"),
        (max, {}, "'max': the signature of .* cannot be read"),
        (lambda: [], {"name": "empty"}, "'empty': the signature of .* cannot be read"),
        (5, {"name": "five"}, "estimator 'five': 5 is not a function"),
        (None, {"name": "nothing"}, "None is not a function"),
        (learns, {}, "critic_learns=None: expected advantage or return with the need 'values'"),
        (learns, {"critic_learns": "values"}, "critic_learns='values': expected advantage or return"),
        (plain, {"critic_learns": "advantage"}, "critic_learns='advantage': expected None without"),
        (plain, {"name": "gem_grpo"}, "estimator 'gem_grpo': configs write 'gem_' before names; omit it"),
    ],
)
def test_a_wrong_declaration_fails_where_it_is_made(function, arguments, message):
    with pytest.raises(ConfigError, match=message):
        estimator(**arguments)(function)
    assert list_estimators() == BUILTIN


def test_a_static_checker_finds_a_wrong_keyword_of_either_form(tmp_path):
    pytest.importorskip("mypy.api", reason="needs mypy")
    pytest.importorskip("torch", reason="needs the extra 'train'")
    from mypy import api

    file = tmp_path / "wrong.py"
    file.write_text(
        "import torch\nfrom gem_core.advantages import grpo, rebn\nx = torch.zeros(1, 2)\n"
        "rebn.tensors(x, x, turn_ids=x, gamma=0.9, weight='episode')\nrebn([[1.0]], gamma=0.9)\n"
        "rebn.tensors(x, x, gama=0.9)\nrebn([[1.0]], ddoff=1)\ngrpo.tensors(x, x, gamma=0.9)\n"
        "rebn.tensors(x, x, weight='turns')\n"
    )
    package = [str(path) for path in Path(advantages.__file__).parent.glob("*.py")]
    text, _, _ = api.run(["--strict", "--no-incremental", "--follow-imports=skip", str(file), *package])
    lines = [
        int(line.split(":")[1]) for line in text.splitlines() if f"{file}:" in line and ": error:" in line
    ]
    assert lines == [6, 7, 8, 9], text


def test_names_in_the_config_of_a_trainer():
    estimator(name="mine")(plain)
    everywhere = {f"gem_{name}": name for name in [*BUILTIN, "mine"]}
    assert _registry.names_in_trainer() == {**everywhere, **{name: name for name in [*BUILTIN, "mine"]}}
    beside = _registry.names_in_trainer(("grpo", "gae"))
    own = [name for name in BUILTIN if not get_estimator(name).common]
    assert {"rebn", "mt_grpo", "rae"} <= set(own) < set(BUILTIN)
    assert beside == {**everywhere, **{name: name for name in [*own, "mine"]}}
    assert _registry.names_in_trainer(("grpo", "mine")) == {k: v for k, v in beside.items() if k != "mine"}
    assert get_estimator("grpo").trainer_name == "gem_grpo"
    assert get_estimator("rebn").trainer_name == "rebn"
