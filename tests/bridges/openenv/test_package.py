import json

import pytest

import gem_core
from gem_bridges.openenv._package import write_package
from gem_core.errors import ConfigError
from gem_lab import main
from tests.bridges.openenv.serving import GUESS


def test_a_package_serves_the_environment_with_its_arguments(tmp_path, capsys):
    folder = tmp_path / "package"
    assert main(["serve", "openenv", f"{GUESS}(max_turns=3)", "--package", str(folder)]) == 0
    assert str(folder / "openenv.yaml") in capsys.readouterr().out
    served = f"{GUESS}(max_turns=3)"
    assert json.dumps(served) in (folder / "Dockerfile").read_text()
    compile((folder / "server" / "app.py").read_text(), "app.py", "exec")
    probe = json.loads((folder / "validation" / "runtime.json").read_text())
    env = gem_core.make(GUESS, max_turns=3)
    env.reset(seed=probe["reset"]["seed"])
    results = [env.step(action["message"]) for action in probe["actions"]]
    assert results[-1][2] or results[-1][3]


def test_a_package_needs_a_new_folder_and_an_environment_of_gem_core(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="not empty"):
        write_package(GUESS, tmp_path)
    gem_core.register("test:Elsewhere-v0", "elsewhere:Env")
    with pytest.raises(ConfigError, match="does not contain this environment"):
        write_package("test:Elsewhere-v0", tmp_path / "new")
