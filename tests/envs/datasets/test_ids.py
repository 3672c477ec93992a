"""The ids of the datasets: each loads a local file with the columns of its dataset."""

from __future__ import annotations

import json

import pytest

import gem_core
from gem_core import spec
from gem_core.errors import DataError
from gem_core.images import image_bytes, image_part, image_urls
from tests.support import PIXEL

IDS = [
    *(
        f"math:{name}"
        for name in ["ASDiv2K", "GSM8K", "Math12K", "Math8K-3to5", "Orz57K", "DeepScaleR40K", "Geometry3K"]
    ),
    *(f"code:{name}" for name in ["CodeContest", "Taco8k", "PrimeIntellect15k"]),
    *(f"logic:RuleTaker-d{depth}" for depth in (0, 1, 2, 3, 5)),
    *(f"qa:{name}" for name in ["NaturalQuestions", "HotpotQA"]),
    *(
        f"eval:{name}"
        for name in [
            "MATH500",
            "AMC",
            "OlympiadBench",
            "Minerva",
            "AIME24",
            "CodeContest",
            "QaOpen",
            "2Wiki",
            "PopQA",
            "TriviaQA",
            "HotpotQA",
            "Bamboogle",
            "NaturalQuestions",
            "Musique",
        ]
    ),
]


def row(env_spec):
    """Return an item in the columns named in the registration."""
    kwargs = env_spec.kwargs
    if "test_key" in kwargs:
        return {
            kwargs["question_key"]: "Echo.",
            kwargs["test_key"]: json.dumps({"inputs": ["1"], "outputs": ["1"]}),
        }
    answer = "True" if env_spec.id.startswith("logic") else "4"
    return {kwargs["question_key"]: "2 + 2?", kwargs["answer_key"]: answer}


def test_all_are_registered_with_what_they_need():
    for id in IDS:
        found = spec(id)
        assert found.extra in ("math", "code", "qa")
        assert found.kwargs["dataset_name"].count("/") == 1
        assert found.description


@pytest.mark.parametrize("id", IDS)
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_local_file_in_the_schema_of_the_dataset(id, suffix, tmp_path):
    env_spec = spec(id)
    if env_spec.extra == "math":
        pytest.importorskip("math_verify", reason="needs the extra 'math'")
    item = row(env_spec)
    image_key = env_spec.kwargs.get("image_key")
    if image_key:
        if suffix == "jsonl":
            item[image_key] = image_urls([image_part(PIXEL)])
        else:
            item[image_key] = [{"bytes": PIXEL, "path": None}]
    path = tmp_path / f"items.{suffix}"
    if suffix == "jsonl":
        path.write_text(json.dumps(item) + "\n")
    else:
        arrow = pytest.importorskip("pyarrow", reason="needs the extra 'data'")
        pytest.importorskip("pyarrow.parquet").write_table(arrow.Table.from_pylist([item]), path)
    with gem_core.make(id, dataset_name=str(path)) as env:
        env.reset(seed=0)
        action = env.oracle_action() or "```python\nprint(input())\n```"
        assert env.step(action)[1] == 1.0
        env.reset(seed=0)
        wrong = (
            "```python\nprint('no')\n```" if "test_key" in env_spec.kwargs else r"\boxed{7}<answer>7</answer>"
        )
        assert env.step(wrong)[1:3] == (0.0, True)


def test_geometry3k_with_images_of_every_form(tmp_path):
    """Test the schema of the hub's parquet files, answers as in that dataset, and other forms."""
    pytest.importorskip("math_verify", reason="needs the extra 'math'")
    arrow = pytest.importorskip("pyarrow", reason="needs the extra 'data'")
    file = arrow.struct([("bytes", arrow.binary()), ("path", arrow.string())])
    schema = arrow.schema(
        [("images", arrow.list_(file)), ("problem", arrow.string()), ("answer", arrow.string())]
    )
    (tmp_path / "figure.png").write_bytes(PIXEL)
    items = [
        {
            "images": [{"bytes": PIXEL, "path": None}],
            "problem": "<image>Find x.",
            "answer": r"2 \sqrt { 221 }",
        },
        {"images": [{"bytes": PIXEL, "path": "12.png"}], "problem": "Find y.", "answer": "3.6"},
        {"images": [{"bytes": None, "path": "figure.png"}], "problem": "<image>Find z.", "answer": "64"},
        {"images": [], "problem": "Find 6 * 7.", "answer": "42"},
    ]
    path = tmp_path / "train.parquet"
    pytest.importorskip("pyarrow.parquet").write_table(arrow.Table.from_pylist(items, schema), path)
    env = gem_core.make("math:Geometry3K", dataset_name=str(path))
    for index, answer in enumerate([r"2\sqrt{221}", "3.60", r"64^\circ", "42"]):
        observation, _ = env.reset(options={"index": index})
        assert [image_bytes(url) for url in image_urls(observation)] == [PIXEL] * (index < 3)
        assert "<image>" not in str(observation)
        assert env.step(f"\\boxed{{{answer}}}")[1] == 1.0
    assert env.shows_images


@pytest.mark.parametrize(
    ("image", "message"),
    [
        ("gone.png", "'gone.png' cannot be read"),
        ("../secret.png", "outside the folder of the data"),
        ("/etc/hostname", "outside the folder of the data"),
        ("https://example.org/a.png", "cannot be read"),
        ({"bytes": "text"}, "cannot be read|not an image"),
        ("data:image/png;base64,AAAA", "not an image"),
        (7, "the image is of type int"),
    ],
)
def test_an_invalid_image_names_the_dataset(image, message, tmp_path):
    pytest.importorskip("math_verify", reason="needs the extra 'math'")
    path = tmp_path / "items.jsonl"
    path.write_text(json.dumps({"images": [image], "problem": "<image>Find x.", "answer": "1"}) + "\n")
    env = gem_core.make("math:Geometry3K", dataset_name=str(path))
    with pytest.raises(DataError, match=rf"items\.jsonl: .*({message})") as caught:
        env.reset(seed=0)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("id", IDS[:1] + IDS[7:8] + IDS[15:16])
def test_without_network_the_error_is_reported_in_one_line(id, monkeypatch, tmp_path):
    pytest.importorskip("huggingface_hub", reason="needs the extra 'data'")
    pytest.importorskip("math_verify", reason="needs the extra 'math'")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with pytest.raises(DataError, match="connect once to download it") as error:
        gem_core.make(id)
    assert "\n" not in str(error.value)
