from __future__ import annotations

import functools
import importlib
import json
import logging
import pickle
import re
import sys
import textwrap
import threading
import typing
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gem_core
from gem_core import Env, EnvSpec, Wrapper, _registration, make, register, register_wrapper, wrap
from gem_core._spec import WrapperSpec
from gem_core._util import entry_points as loading
from gem_core.errors import ConfigError, MissingDependency, UnknownEnv, UnknownName
from tests.support import ScriptedEnv


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test its own registry, without registrations of other tests in this process."""
    _registration._envs.names()  # loads the built-in ones
    own = {id: spec for id, spec in _registration._envs.registered().items() if not id.startswith("test:")}
    monkeypatch.setattr(_registration._envs, "_values", own)
    monkeypatch.setattr(_registration._wrappers, "_values", _registration._wrappers.registered())
    monkeypatch.setattr(_registration._schemes, "_values", _registration._schemes.registered())
    monkeypatch.setattr(_registration, "_families", dict(_registration._families))
    monkeypatch.setattr(loading, "_loaded_groups", set())


# -- ids --------------------------------------------------------------------------------------


def test_register_and_make() -> None:
    register("test:Scripted-v0", "tests.support:ScriptedEnv", rewards=[1.0, 2.0], truncate=True)
    env = make("test:Scripted-v0", rewards=[3.0])
    assert isinstance(env, ScriptedEnv)
    assert (env.rewards, env.truncate) == ([3.0], True)
    assert env.spec is not None
    assert env.spec.kwargs == {"rewards": [3.0], "truncate": True}
    assert gem_core.spec("test:Scripted-v0").kwargs == {"rewards": [1.0, 2.0], "truncate": True}
    assert env.spawn().spec == env.spec


@pytest.mark.parametrize("entry_point", [ScriptedEnv, lambda rewards: ScriptedEnv(rewards)])
def test_entry_point_may_be_a_callable(entry_point: Any) -> None:
    register("test:Callable-v0", entry_point)
    env = make("test:Callable-v0", rewards=[5.0])
    assert env.spec is not None
    assert env.spec.id == "test:Callable-v0"
    with pytest.raises(ConfigError, match="'module:attribute' string"):
        env.spec.to_json()


def test_a_scheme_makes_every_id_with_its_prefix() -> None:
    _registration.register_scheme("test-scheme", "tests.support:NamedEnv", "name", deterministic=False)
    env = make("test-scheme:http://host:8000", wrappers="time_limit(max_turns=2)")
    assert env.unwrapped.name == "http://host:8000"  # type: ignore[attr-defined]
    assert env.spec is not None
    assert (env.spec.id, env.spec.kwargs) == ("test-scheme:http://host:8000", {"name": "http://host:8000"})
    assert (env.spec.deterministic, env.spec.stateful) == (False, True)
    assert make(EnvSpec.from_json(env.spec.to_json())).spec == env.spec
    assert "test-scheme:http://host:8000" not in gem_core.list_envs()


def test_a_registered_id_comes_before_a_scheme() -> None:
    _registration.register_scheme("test", "tests.support:NamedEnv", "name")
    register("test:Own-v0", "tests.support:ScriptedEnv")
    assert isinstance(make("test:Own-v0"), ScriptedEnv)


def test_a_scheme_needs_a_name_and_its_extra() -> None:
    _registration.register_scheme("test-scheme", "no_such_package.bridge:Env", "name", extra="bridge")
    with pytest.raises(UnknownEnv, match="expected a name after 'test-scheme:'"):
        make("test-scheme:")
    with pytest.raises(MissingDependency, match=r"pip install 'gem-core\[bridge\]'"):
        make("test-scheme:Any-v0")
    with pytest.raises(ConfigError, match="scheme 'test-scheme' is already registered"):
        _registration.register_scheme("test-scheme", "tests.support:NamedEnv", "name")


def test_registering_twice() -> None:
    register("test:Once-v0", "tests.support:ScriptedEnv")
    register("test:Once-v0", "tests.support:ScriptedEnv")
    with pytest.raises(ConfigError, match=r"environment 'test:Once-v0' is already registered as EnvSpec"):
        register("test:Once-v0", "tests.support:ScriptedEnv", truncate=True)
    with pytest.raises(ConfigError, match="expected 'module:attribute'"):
        register("test:Other-v0", "tests.support.ScriptedEnv")


@pytest.mark.parametrize("family", ["GuessTheNumber", "Mastermind", "Minesweeper", "TowerofHanoi"])
def test_bare_ids_work(family: str) -> None:
    bare = make(f"game:{family}-v0")
    assert bare.spec is not None
    assert bare.spec.id == f"game:{family}-v0"
    bare.reset(seed=0)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("game:GuessTheNumbr-v0", "game:GuessTheNumber-v0"),
        ("game:guessthenumber-v0-easy", "game:GuessTheNumber-v0-easy"),
        ("GuessTheNumber-v0-hard", "game:GuessTheNumber-v0-hard"),
        ("game:TowerOfHanoi-v0", "game:TowerofHanoi-v0"),
    ],
)
def test_unknown_id_suggests_the_closest(wrong: str, right: str) -> None:
    with pytest.raises(UnknownEnv, match=rf"unknown environment '{wrong}'. Did you mean .*{right}"):
        make(wrong)


def test_unknown_id_that_is_like_nothing() -> None:
    with pytest.raises(UnknownEnv) as caught:
        make("zzzzzz")
    assert "Did you mean" not in str(caught.value)
    assert "gem-core envs" in str(caught.value)


def test_list_and_print(capsys: pytest.CaptureFixture[str]) -> None:
    register("test:B-v0", ScriptedEnv, description="the second")
    register("test:A-v0", ScriptedEnv)
    assert gem_core.list_envs("test:*") == ["test:A-v0", "test:B-v0"]
    assert set(gem_core.list_envs("test:*")) < set(gem_core.list_envs())
    gem_core.print_envs("test:*")
    first, second = capsys.readouterr().out.splitlines()
    assert first == "test:A-v0"
    assert second.split(maxsplit=1) == ["test:B-v0", "the second"]


def test_unknown_arguments_list_the_accepted_ones() -> None:
    register("test:Scripted-v0", "tests.support:ScriptedEnv")
    accepted = "accepted keyword arguments: rewards, fail_at, delay, truncate, blocking"
    with pytest.raises(TypeError, match=rf"test:Scripted-v0: .*'speed'; {accepted}"):
        make("test:Scripted-v0", speed=3)

    class NoArguments(Env):
        pass

    register("test:None-v0", NoArguments)
    with pytest.raises(TypeError, match="accepted keyword arguments: none"):
        make("test:None-v0", speed=3)


def test_a_factory_may_be_a_builtin_without_a_signature() -> None:
    holder = SimpleNamespace(env=ScriptedEnv())
    register("test:Builtin-v0", functools.partial(getattr, holder, "env"))
    assert make("test:Builtin-v0").unwrapped is holder.env


def test_missing_extra_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "needs_more.py").write_text("import surely_not_installed\n")
    monkeypatch.syspath_prepend(tmp_path)
    register("test:Extra-v0", "needs_more:Env", extra="vision")
    with pytest.raises(MissingDependency, match=r"'surely_not_installed': pip install 'gem-core\[vision\]'"):
        make("test:Extra-v0")
    register("test:NoExtra-v0", "needs_more:Env")
    with pytest.raises(ModuleNotFoundError, match="surely_not_installed"):
        make("test:NoExtra-v0")


def test_nonexistent_entry_points() -> None:
    register("test:Gone-v0", "no_such_package.envs:Env")
    with pytest.raises(
        ConfigError, match=r"test:Gone-v0: entry point 'no_such_package.envs:Env' cannot be imported"
    ):
        make("test:Gone-v0")
    register("test:Typo-v0", "tests.support:ScriptedEnvv")
    with pytest.raises(
        ConfigError, match=r"test:Typo-v0: there is no 'ScriptedEnvv' in .* Did you mean ScriptedEnv"
    ):
        make("test:Typo-v0")
    register_wrapper("gone", "gem_core.no_such_module:Wrapper")
    with pytest.raises(
        ConfigError, match=r"gone: entry point 'gem_core.no_such_module:Wrapper' cannot be imported"
    ):
        wrap(ScriptedEnv(), "gone")


# -- specs ------------------------------------------------------------------------------------

_json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
_kwargs = st.dictionaries(st.text(max_size=5), _json_values, max_size=3)


@given(
    kwargs=_kwargs,
    wrappers=st.lists(st.builds(WrapperSpec, st.sampled_from(["concat", "time_limit"]), _kwargs), max_size=2),
    description=st.text(max_size=10),
    extra=st.none() | st.just("train"),
    flags=st.tuples(st.booleans(), st.booleans()),
)
def test_specs_survive_json_and_pickle(
    kwargs: Any, wrappers: Any, description: str, extra: str | None, flags: tuple[bool, bool]
) -> None:
    spec = EnvSpec("a:B-v0", "module:Env", kwargs, tuple(wrappers), description, extra, *flags)
    assert EnvSpec.from_json(spec.to_json()) == spec
    assert pickle.loads(pickle.dumps(spec)) == spec


@pytest.mark.parametrize("text", ["", "[]", "null", "{}", '{"id": "a"}', "no json"])
def test_from_json_rejects_other_things(text: str) -> None:
    with pytest.raises(ConfigError, match="not the JSON form of an EnvSpec"):
        EnvSpec.from_json(text)


def test_from_json_rejects_unknown_fields() -> None:
    data = json.loads(gem_core.spec("game:GuessTheNumber-v0").to_json())
    with pytest.raises(ConfigError, match="color"):
        EnvSpec.from_json(json.dumps({**data, "color": "red"}))


def test_kwargs_without_a_json_form_are_rejected() -> None:
    with pytest.raises(ConfigError, match="must be JSON-serializable"):
        EnvSpec("a:B-v0", "module:Env", {"rng": object()}).to_json()


def test_spec_of_an_env_makes_it_again_with_arguments_and_wrappers() -> None:
    env = make("game:GuessTheNumber-v0", max_number=9, wrappers="time_limit(max_turns=2), concat")
    assert env.spec is not None
    again = make(EnvSpec.from_json(env.spec.to_json()))
    assert again.spec == env.spec
    assert "from 1 to 9" in again.reset(seed=0)[0]
    assert repr(again) == repr(env)
    assert again.reset(seed=1) == env.reset(seed=1)
    assert "from 1 to 5" in make(env.spec, max_number=5).reset(seed=0)[0]


# -- wrappers ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given_wrappers",
    [
        "time_limit(max_turns=2), concat",
        ["time_limit(max_turns=2)", "concat"],
        (WrapperSpec("time_limit", {"max_turns": 2}), "concat"),
        " time_limit( max_turns = 2 ) ,concat, ",
    ],
)
def test_forms_of_wrappers(given_wrappers: Any) -> None:
    env = make("game:GuessTheNumber-v0", wrappers=given_wrappers)
    assert repr(env).startswith("<Concat <TimeLimit <GuessTheNumber")
    assert env.spec is not None
    assert env.spec.wrappers == (WrapperSpec("time_limit", {"max_turns": 2}), WrapperSpec("concat"))
    assert [str(w) for w in env.spec.wrappers] == ["time_limit(max_turns=2)", "concat"]


def test_callables_wrap_but_are_not_in_the_spec() -> None:
    env = make("game:GuessTheNumber-v0", wrappers=["concat", Wrapper, functools.partial(Wrapper)])
    assert repr(env).startswith("<Wrapper <Wrapper <Concat")
    assert env.spec is not None
    assert env.spec.wrappers == (WrapperSpec("concat"),)
    assert repr(make("game:GuessTheNumber-v0", wrappers=Wrapper)).startswith("<Wrapper <Guess")


@pytest.mark.parametrize("nothing", ["", "  ", (), []])
def test_no_wrappers(nothing: Any) -> None:
    assert repr(make("game:GuessTheNumber-v0", wrappers=nothing)).startswith("<GuessTheNumber")


@pytest.mark.parametrize(
    "wrappers", ["concat, time_limit(max_turns=3)", ["concat", "time_limit(max_turns=3)"]]
)
def test_wrappers_of_a_registered_spec(wrappers: Any) -> None:
    register("test:Wrapped-v0", "tests.support:ScriptedEnv", wrappers=wrappers)
    env = make("test:Wrapped-v0", wrappers="episode_statistics")
    assert repr(env) == "<EpisodeStatistics <TimeLimit <Concat <ScriptedEnv test:Wrapped-v0>>>>"
    assert env.spec is not None
    assert [w.name for w in env.spec.wrappers] == ["concat", "time_limit", "episode_statistics"]
    assert [w.name for w in gem_core.spec("test:Wrapped-v0").wrappers] == ["concat", "time_limit"]


@pytest.mark.parametrize(
    "text",
    [
        "concat(",
        "concat(3)",
        "concat(max_history=print)",
        "concat(**{'max_history': 1})",
        "concat(max_history=1, max_history=2)",
        "a.b",
        "concat; concat",
        "lambda env: env",
        "3",
    ],
)
def test_malformed_wrapper_strings(text: str) -> None:
    with pytest.raises(ConfigError, match=r"expected names with literal keyword arguments, such as"):
        wrap(ScriptedEnv(), text)


def test_things_that_are_not_wrappers() -> None:
    for thing in (3, None, [None]):
        with pytest.raises(ConfigError, match="expected a config string"):
            wrap(ScriptedEnv(), thing)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="expected a config string"):
        register("test:Bad-v0", ScriptedEnv, wrappers=[Wrapper])  # type: ignore[list-item]


def test_unknown_wrappers_and_their_arguments() -> None:
    with pytest.raises(
        UnknownName, match=r"unknown wrapper 'concat_chats'. Did you mean concat_chat.*Available: concat,"
    ):
        wrap(ScriptedEnv(), "concat_chats")
    with pytest.raises(TypeError, match=r"time_limit: .*'turns'; accepted keyword arguments: max_turns"):
        wrap(ScriptedEnv(), "time_limit(max_turns=1, turns=3)")
    with pytest.raises(TypeError, match="time_limit: missing a required argument: 'max_turns'"):
        wrap(ScriptedEnv(), "time_limit")


def test_register_wrapper() -> None:
    register_wrapper("plain", "gem_core._wrapper:Wrapper")
    register_wrapper("plain", "gem_core._wrapper:Wrapper")
    assert "plain" in gem_core.list_wrappers()
    assert repr(wrap(ScriptedEnv(), "plain")) == "<Wrapper <ScriptedEnv>>"
    with pytest.raises(ConfigError, match="'plain' is already registered"):
        register_wrapper("plain", "gem_core._core:Env")


def test_built_in_wrapper_table_can_be_imported() -> None:
    for name, entry_point in _registration.wrapper_entry_points().items():
        module, _, attribute = entry_point.partition(":")
        loaded = getattr(importlib.import_module(module), attribute)
        made = loaded if isinstance(loaded, type) else typing.get_type_hints(loaded)["return"]  # a preset
        assert issubclass(made, Wrapper), name


# -- entry points -----------------------------------------------------------------------------


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Folder on sys.path into which tests install small distributions."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("dist_"):
            del sys.modules[name]


def install(site: Path, name: str, code: str, entry: str) -> None:
    """Create the files that pip installs for a package of one module."""
    (site / f"{name}.py").write_text(textwrap.dedent(code))
    info = site / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[gem_core.envs]\n{name} = {entry}\n")


GOOD = """
    from gem_core import register, register_wrapper
    from gem_core import Env
    from gem_core import Wrapper

    class Third(Env):
        def reset(self, seed=None, *, options=None):
            self.begin_episode(seed)
            return "third party", {}

    class Frame(Wrapper):
        pass

    def register_all():
        register("third:Party-v0", "dist_good:Third", description="from elsewhere")
        register_wrapper("frame", "dist_good:Frame")
"""


def test_installed_packages_are_found(site: Path) -> None:
    install(site, "dist_good", GOOD, "dist_good:register_all")
    env = make("third:Party-v0", wrappers="frame")
    assert env.reset()[0] == "third party"
    assert "third:Party-v0" in gem_core.list_envs()


def test_installed_wrappers_are_found_first(site: Path) -> None:
    install(site, "dist_good", GOOD, "dist_good:register_all")
    assert repr(wrap(ScriptedEnv(), "frame")) == "<Frame <ScriptedEnv>>"


def test_entry_point_may_be_a_module_that_registers(site: Path) -> None:
    install(
        site,
        "dist_module",
        GOOD.replace("dist_good", "dist_module") + "\n    register_all()\n",
        "dist_module",
    )
    assert gem_core.list_envs("third:*") == ["third:Party-v0"]


def test_broken_package_warns_and_the_rest_continues(site: Path, caplog: pytest.LogCaptureFixture) -> None:
    install(site, "dist_a_broken", "raise RuntimeError('half installed')", "dist_a_broken:register_all")
    install(site, "dist_b_clash", GOOD.replace("dist_good", "dist_b_clash"), "dist_b_clash:no_such_function")
    install(site, "dist_good", GOOD, "dist_good:register_all")
    with caplog.at_level(logging.WARNING):
        assert "third:Party-v0" in gem_core.list_envs()
        assert gem_core.list_envs("third:*")
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2  # once each, not at every call
    assert any("'dist_a_broken'" in m and "RuntimeError: half installed" in m for m in messages)
    assert any("'dist_b_clash'" in m and "no_such_function" in m for m in messages)


def test_threads_wait_until_the_packages_are_loaded(site: Path) -> None:
    code = GOOD.replace("def register_all():", "def register_all():\n        STARTED.set(); GO.wait(10)")
    code = code.replace(
        "from gem_core import",
        "import threading\n    STARTED, GO = threading.Event(), threading.Event()\n    from gem_core import",
        1,
    )
    install(site, "dist_good", code, "dist_good:register_all")
    module = importlib.import_module("dist_good")
    found: list[str] = []
    first = threading.Thread(target=gem_core.list_envs)
    first.start()
    assert module.STARTED.wait(10)
    second = threading.Thread(target=lambda: found.append(gem_core.spec("third:Party-v0").id))
    second.start()
    module.GO.set()
    first.join(10)
    second.join(10)
    assert found == ["third:Party-v0"]


# -- families ---------------------------------------------------------------------------------

loads: list[str] = []


def load_family() -> None:
    loads.append("family")
    register("family:One-v0", "tests.support:ScriptedEnv")


def load_family_without_its_package() -> None:
    raise MissingDependency("family needs the package 'x': pip install x")


def test_a_family_that_cannot_be_loaded_says_so_every_time() -> None:
    _registration.register_family("family:", f"{__name__}:load_family_without_its_package")
    for _ in range(2):
        with pytest.raises(MissingDependency, match="pip install x"):
            gem_core.spec("family:One-v0")


def test_a_family_is_loaded_once_and_only_when_it_may_be_meant() -> None:
    loads.clear()
    _registration.register_family("family:", f"{__name__}:load_family")
    gem_core.list_envs("game:*")
    assert loads == []
    with pytest.raises(UnknownEnv):
        gem_core.spec("game:NoSuchGame")
    assert loads == []
    assert gem_core.list_envs("fam*") == ["family:One-v0"]
    assert gem_core.spec("family:One-v0").id == "family:One-v0"
    with pytest.raises(UnknownEnv, match="Did you mean family:One-v0"):
        gem_core.spec("family:Onne-v0")
    assert loads == ["family"]


def test_a_floor_is_a_share_of_episodes() -> None:
    for floor in (-0.1, 1.1, float("nan")):
        with pytest.raises(ConfigError, match=r"test:Floor-v0: floor=.*: expected a .*number from 0 to 1"):
            register("test:Floor-v0", "tests.checker.broken_envs:Sound", floor=floor)
    register("test:Floor-v0", "tests.checker.broken_envs:Sound", floor=0.5)
    assert EnvSpec.from_json(_registration.spec("test:Floor-v0").to_json()).floor == 0.5
    declared = _registration.spec("game:GuessTheNumber-v0").floor
    assert declared is None, "those of the package are measured, not declared"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "import os\nimport surely_not_installed\n",
            "broken.py:2 cannot be imported: ModuleNotFoundError: No",
        ),
        ("class Env(:\n", "broken.py cannot be imported: SyntaxError: "),
        ("def f():\n    return 1 / 0\n\n\nf()\n", "broken.py:2 cannot be imported: ZeroDivisionError: "),
    ],
)
def test_an_error_in_the_file_of_an_environment_names_its_line(
    code: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "broken.py").write_text(code)
    with pytest.raises(ConfigError, match=re.escape(message)):
        make(f"{tmp_path}/broken.py:Env")
