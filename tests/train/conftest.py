from __future__ import annotations

import fcntl
import pickle
from contextlib import contextmanager

import pytest

from tests.train.helpers import EASY, LONG, Faulty, options


@pytest.fixture(scope="session")
def shared_folder(request, tmp_path_factory):
    """Temporary folder of all workers."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if hasattr(request.config, "workerinput") else folder


@contextmanager
def locked(path):
    """Hold a lock between processes."""
    with open(path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def made_once(shared_folder):
    """Function that makes a tiny model with given options, once for all workers, and returns its folder."""
    pytest.importorskip("torch", reason="needs the extra 'train'")
    from gem_lab.train import TinyOptions, save_tiny

    def make(name, **options):
        folder = shared_folder / name
        with locked(shared_folder / f"{name}.lock"):
            if not folder.exists():
                save_tiny(folder, TinyOptions(**options))
        return folder

    return make


@pytest.fixture(scope="session")
def tiny_folder(made_once):
    """Folder of a model that knows the format of two games, made in three seconds."""
    return made_once(
        "tiny", env=(EASY, LONG), layers=1, warm_start_steps=50, warm_start_tokens=12_000, corpus_episodes=50
    )


@pytest.fixture(scope="session")
def tokenizer(tiny_folder):
    from gem_lab._engines.loading import load_tokenizer

    return load_tokenizer(str(tiny_folder))


@pytest.fixture
def model(tiny_folder):
    """A fresh copy of the tiny model."""
    import torch

    from gem_lab._engines.loading import load_model

    return load_model(str(tiny_folder), torch.device("cpu"), "float32")


@pytest.fixture(scope="session")
def learned(tiny_folder, shared_folder):
    """Outcome of a run that learns the easy game, with traces and a curve; made once for all workers."""
    from gem_lab.train import TrainConfig, train

    out, outcome = shared_folder / "learned", shared_folder / "learned.pickle"
    config = TrainConfig(
        **options(
            tiny_folder, out, steps=30, episodes_per_step=96, minibatches=4, learning_rate=2e-3, kl=0.05,
            warmup_steps=5, eval_episodes=150, trace_every=10, trace_episodes=96, save_every=20,
            tensorboard=True, curve=True,
        )
    )  # fmt: skip
    with locked(shared_folder / "learned.lock"):
        if not outcome.exists():
            outcome.write_bytes(pickle.dumps(train(config)))
    return pickle.loads(outcome.read_bytes())


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Use one thread, so that sums have a fixed order and two runs can be compared bit by bit."""
    try:
        import torch
    except ImportError:
        yield
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def count_from_zero():
    Faulty.played, Faulty.interrupted = 0, False
    Faulty.made.clear()
