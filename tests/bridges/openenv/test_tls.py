import shutil
import subprocess

import pytest

import gem_core
from gem_core.errors import ConfigError
from gem_envs.serving._run import tls_context
from tests.bridges.openenv.serving import GUESS, serving


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate of 127.0.0.1 and its key, in files."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the program openssl")
    folder = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    command += " -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out cert.pem"
    subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    return str(folder / "cert.pem"), str(folder / "key.pem")


def test_episodes_are_encrypted_and_the_certificate_is_checked(certificate, monkeypatch):
    with serving(GUESS, tls=tls_context(*certificate)) as running:
        url = running.url.replace("http:", "https:")
        with (
            gem_core.make(f"openenv:{url}", retry_for=0.2) as env,
            pytest.raises(Exception, match="certificate"),
        ):
            env.reset(seed=0)
        monkeypatch.setenv("SSL_CERT_FILE", certificate[0])
        with gem_core.make(f"openenv:{url}") as env:
            assert "hidden number" in env.reset(seed=0)[0]
            assert env.step("x" * 200_000)[4]["invalid"] == "format"


def test_a_certificate_that_cannot_be_loaded_is_named(tmp_path):
    with pytest.raises(ConfigError, match="cannot load the certificate"):
        tls_context(str(tmp_path / "none.pem"))
