"""Estimators are found by name, including third-party ones."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import inspect
import subprocess
import sys

import pytest

from gem_core import advantages
from gem_core._util import entry_points as loading
from gem_core.advantages import registry
from gem_core.advantages.registry import Estimator, get_estimator, list_estimators, register_estimator
from gem_core.errors import ConfigError, MissingDependency, UnknownName

BUILTIN = [
    "dr_grpo", "gae", "gdpo", "gigpo", "grpo", "maxrl", "mt_grpo", "opo", "rae", "rebn", "reinforce",
    "reinforce_plus_plus", "reinforce_plus_plus_baseline", "remax", "rloo",
]  # fmt: skip


@pytest.fixture(autouse=True)
def own_table(monkeypatch):
    # Ignore estimators registered by other tests in this process.
    own = {name: registry._estimators.get(name) for name in BUILTIN}
    monkeypatch.setattr(registry._estimators, "_values", own)
    monkeypatch.setattr(loading, "_loaded_groups", loading._loaded_groups - {registry.ENTRY_POINT_GROUP})


@pytest.mark.parametrize("name", BUILTIN)
def test_builtin_estimators_take_gamma_and_their_needs_by_keyword(name):
    estimator = get_estimator(name)
    given = {
        "group_ids": ["a", "a"],
        "agent_ids": ["a", "a"],
        "baselines": [0.5, 0.5],
        "values": [[0.5], [0.0, 0.5]],
        "lengths": [[3], [1, 2]],
        "state_keys": [["s"], ["s", "t"]],
        "reward_components": [[[1.0, 0.0]], [[0.0, 0.0], [0.5, 0.5]]],
    }
    arguments = {need: given[need] for need in estimator.needs}
    advantages_of_turns = estimator.reference()([[1.0], [0.0, 0.5]], gamma=0.9, **arguments)
    assert [len(episode) for episode in advantages_of_turns] == [1, 2]
    assert estimator.reference() is getattr(advantages, name)


@pytest.mark.parametrize("name", BUILTIN)
def test_builtin_tensor_forms_take_the_same_keywords(name):
    torch = pytest.importorskip("torch", reason="needs the extra 'train'")
    estimator = get_estimator(name)
    given = {
        "group_ids": [0, 0],
        "agent_ids": [0, 0],
        "baselines": [0.5, 0.5],
        "values": torch.zeros(2, 3),
        "lengths": None,
        "state_keys": [["s"], ["s"]],
        "reward_components": torch.ones(2, 3, 2),
    }
    arguments = {need: given[need] for need in estimator.needs}
    if estimator.uses_stats:
        arguments |= {"stats": advantages.ReturnStats(5, 0.0, 1.0), "process_group": None}
    result = estimator.tensors()(torch.ones(2, 3), torch.ones(2, 3), turn_ids=None, gamma=0.9, **arguments)
    assert result.advantages.shape == (2, 3)


def forms_of(estimator):
    """Return the numpy form and, if torch is installed, the form for tensors."""
    has_torch = importlib.util.find_spec("torch") is not None
    return [estimator.reference(), *([estimator.tensors()] if has_torch else [])]


@pytest.mark.parametrize("name", BUILTIN)
def test_both_forms_take_the_options_of_a_config(name):
    estimator = get_estimator(name)
    for form in forms_of(estimator):
        assert set(estimator.options) <= inspect.signature(form).parameters.keys()
    estimator.check_options(estimator.options)
    with pytest.raises(
        ConfigError, match=rf"option 'algorithm.x.dof' of {name}\. (Did you mean|Available: )"
    ):
        estimator.check_options(["dof"], prefix="algorithm.x.")


@pytest.mark.parametrize("name", BUILTIN)
def test_both_forms_document_every_argument_and_discount_by_the_same_default(name):
    estimator = get_estimator(name)
    for form in forms_of(estimator):
        text, parameters = inspect.getdoc(form), inspect.signature(form).parameters
        assert [argument for argument in parameters if f"\n    {argument}: " not in text] == []
        assert all(f"\n{section}:\n" in text for section in ("Args", "Returns", "Raises"))
        assert "As above" not in text
        assert parameters["gamma"].default == 1.0


def test_list_holds_the_builtin_ones():
    assert list_estimators() == BUILTIN


def test_an_unknown_name_is_answered_with_the_closest():
    with pytest.raises(UnknownName, match=r"unknown estimator 'ReBM'. Did you mean rebn or remax\?"):
        get_estimator("ReBM")


def test_registering():
    own = Estimator("own", lambda rewards, gamma=1.0: rewards, "nowhere:function")
    register_estimator(own)
    register_estimator(own)
    assert get_estimator("own").reference()([[1.0]]) == [[1.0]]
    with pytest.raises(ConfigError, match="'own': entry point 'nowhere:function' cannot be imported"):
        own.tensors()
    with pytest.raises(ConfigError, match="'own' is already registered"):
        register_estimator(Estimator("own", max, max))
    with pytest.raises(ConfigError, match=r"'module\.function' is not of the form"):
        register_estimator(Estimator("other", "module.function", max))


def test_installed_packages_register_through_their_entry_point(monkeypatch):
    def load():
        register_estimator(Estimator("theirs", max, max))

    class Installed:
        name = "theirs"

        def load(self):
            return load

    def entry_points(group):
        return [Installed()] if group == "gem_core.advantages" else []

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    assert get_estimator("theirs").reference() is max
    assert "theirs" in list_estimators()


def test_without_torch_the_pip_command_is_given(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)  # import torch: ModuleNotFoundError
    for module in ("gem_core.advantages.tensors", "gem_core.advantages.turns"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(MissingDependency, match=r"pip install 'gem-core\[train\]'"):
        get_estimator("rebn").tensors()


def test_names_and_numpy_forms_load_no_torch():
    code = (
        "import sys; from gem_core.advantages.registry import get_estimator; "
        "get_estimator('rebn').reference()([[1.0], [0.0]]); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def plain(turn_rewards, *, gamma=1.0):
    return turn_rewards


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"needs": ("groups",)}, "unknown need 'groups' of estimator 'bad'"),
        ({"option_needs": {"by": {"env": "envs"}}}, "unknown need 'envs' of estimator 'bad'"),
        ({"needs": ("group_ids",)}, "no argument 'group_ids'; its arguments are turn_rewards, gamma"),
        ({"options": ("scale",)}, "plain takes no argument 'scale'"),
        ({"reference_function": lambda rewards: rewards}, "takes no argument 'gamma'"),
        ({"reference_function": 5}, "5 is not a function"),
        ({"reference_function": None}, "None is not a function"),
        ({"tensor_function": 5}, "5 is not a function"),
        ({"tensor_function": plain}, "plain takes no argument 'turn_ids'"),
        ({"needs": ("values",)}, "critic_learns=None: expected advantage or return with the need 'values'"),
        ({"critic_learns": "advantage"}, "critic_learns='advantage': expected None without"),
        ({"uses_stats": True}, "uses statistics of the batch, so it needs its own tensor_function"),
        ({"reference_function": "module.function"}, "is not of the form 'module:attribute'"),
    ],
)  # fmt: skip
def test_a_wrong_estimator_fails_where_it_is_made(arguments, message):
    with pytest.raises(ConfigError, match=message):
        Estimator(**{"name": "bad", "reference_function": plain} | arguments)


@pytest.mark.parametrize("form", ["reference_function", "tensor_function"])
@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("gem_core.advantages:rebm", "there is no 'rebm' in gem_core.advantages. Did you mean rebn"),
        ("gem_core.nothing:rebn", "cannot be imported"),
        ("gem_core.advantages:__all__", "is not a function"),
        ("builtins:max", None),
        ("gem_core.tasks:make_tasks", "make_tasks takes no argument 'gamma'"),
    ],
)
def test_a_form_that_a_text_names_wrongly_fails_clearly(form, named, message):
    made = Estimator(**{"name": "half", "reference_function": plain, form: named})
    load = made.reference if form == "reference_function" else made.tensors
    if message is None:
        assert load()
        return
    with pytest.raises(ConfigError, match=rf"estimator 'half'.*{message}"):
        load()


def test_every_builtin_estimator_has_both_forms():
    pytest.importorskip("torch", reason="needs the extra 'train'")
    for name in BUILTIN:
        assert get_estimator(name).reference().__name__ == get_estimator(name).tensors().__name__ == name


def test_names_in_the_config_of_a_trainer():
    register_estimator(Estimator("mine", plain))
    everywhere = {f"gem_{name}": name for name in [*BUILTIN, "mine"]}
    assert registry.names_in_trainer() == {**everywhere, **{name: name for name in [*BUILTIN, "mine"]}}
    beside = registry.names_in_trainer(("grpo", "gae"))
    assert beside == {**everywhere, **{name: name for name in ("rebn", "mt_grpo", "rae", "mine")}}
    assert registry.names_in_trainer(("grpo", "mine")) == {k: v for k, v in beside.items() if k != "mine"}
    assert get_estimator("grpo").trainer_name == "gem_grpo"
    assert get_estimator("rebn").trainer_name == "rebn"
