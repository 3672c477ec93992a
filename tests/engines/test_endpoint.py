"""The endpoint policy against stubs of an endpoint with every kind of failure."""

from __future__ import annotations

import asyncio
import json
import threading
import time

import pytest

from gem_core.errors import ConfigError, ServiceError
from gem_core.rollout import ChatReply, ContextFull, RequestRejected
from gem_lab._engines.endpoint import Endpoint
from gem_lab._engines.patience import Patience
from tests.engines.stub import Flaky, StubEndpoint, completion
from tests.support import needs

pytestmark = needs("openai", "eval")

QUESTION = [{"role": "user", "content": "Guess a number."}]


def ask(url: str, *, times: int = 1, max_tokens: int = 50, **options) -> list[ChatReply]:
    options.setdefault("patience", Patience(5))

    async def every() -> list[ChatReply]:
        endpoint = Endpoint("a-model", base_url=url, api_key="secret", **options)
        try:
            return await asyncio.gather(
                *(
                    endpoint.reply(QUESTION, max_tokens=max_tokens, request_id=f"episode {number}")
                    for number in range(times)
                )
            )
        finally:
            await endpoint.close()

    return asyncio.run(every())


def test_an_answer_with_its_counts():
    with StubEndpoint(lambda request: "five it is") as endpoint:
        (reply,) = ask(endpoint.url, temperature=0.5, top_p=0.9)
    assert reply == ChatReply("five it is", "stop", 3, 3, {})
    (request,) = endpoint.requests
    assert request["model"] == "a-model"
    assert request["messages"] == QUESTION
    assert (request["temperature"], request["top_p"], request["max_tokens"]) == (0.5, 0.9, 50)


def test_a_request_has_its_own_seed_whatever_happened_before():
    with StubEndpoint() as endpoint:
        ask(endpoint.url, times=4, seed=7)
        ask(endpoint.url, times=4, seed=7)
        ask(endpoint.url, seed=8)
        ask(endpoint.url, seed=None)
    seeds = [request.get("seed") for request in endpoint.requests]
    assert set(seeds[:4]) == set(seeds[4:8])
    assert len(set(seeds[:4])) == 4
    assert seeds[8] not in seeds[:8]
    assert seeds[9] is None


def test_half_of_the_calls_fail_and_nothing_changes():
    with StubEndpoint() as endpoint, Flaky(endpoint.url) as flaky:
        direct = ask(endpoint.url, times=8)
        through = ask(flaky.url, times=8)
    assert through == direct
    assert flaky.failed >= 8


def test_a_wrong_key_is_reported_in_one_line():
    with (
        StubEndpoint(key="another") as endpoint,
        pytest.raises(ServiceError, match=r"rejects the key.*Incorrect"),
    ):
        ask(endpoint.url)


def test_an_unknown_model_is_reported_in_one_line():
    def nothing(request):
        return 404, {"error": {"message": "The model does not exist"}}

    with StubEndpoint(nothing) as endpoint, pytest.raises(ServiceError, match="has no model 'a-model'"):
        ask(endpoint.url)


def test_a_dead_endpoint_is_abandoned():
    with StubEndpoint() as endpoint:
        url = endpoint.url
    began = time.monotonic()
    with pytest.raises(ServiceError, match=rf"{url}.* does not answer .*finished episodes are kept"):
        ask(url, patience=Patience(0.2))
    assert time.monotonic() - began < 60


def test_an_endpoint_that_answers_nonsense_is_abandoned():
    with (
        StubEndpoint(lambda request: (200, {"hello": 1})) as endpoint,
        pytest.raises(ServiceError, match="not a compl"),
    ):
        ask(endpoint.url, patience=Patience(0.2))


@pytest.mark.parametrize("slow", [1, 2])
def test_a_slow_failure_is_retried(slow):
    """The first answers take longer than the silence that an endpoint is allowed."""
    asked = []

    def answer(request):
        asked.append(1)
        if len(asked) <= slow:
            time.sleep(0.3)
            return 503, {"error": {"message": "worker restarted"}}
        return "seven"

    with StubEndpoint(answer) as endpoint:
        (reply,) = ask(endpoint.url, patience=Patience(0.2))
    assert reply.text == "seven"
    assert len(asked) == slow + 1


def test_a_request_that_times_out_is_retried():
    asked = []

    def answer(request):
        asked.append(1)
        if len(asked) == 1:
            time.sleep(1.0)
        return "seven"

    with StubEndpoint(answer) as endpoint:
        (reply,) = ask(endpoint.url, patience=Patience(0.2), timeout=0.5)
    assert reply.text == "seven"


def test_waiting_for_the_own_rate_limit_is_no_silence():
    """Two calls per 0.6 s: the second waits longer than an endpoint may be silent, then fails at first."""
    asked = []

    def answer(request):
        asked.append(1)
        return "seven" if len(asked) in (1, 3) else (500, {"error": {"message": "broken"}})

    with StubEndpoint(answer) as endpoint:
        replies = ask(endpoint.url, times=2, patience=Patience(0.1), requests_per_minute=100)
    assert [reply.text for reply in replies] == ["seven", "seven"]


def test_an_exhausted_quota_is_not_retried():
    asked = []

    def broke(request):
        asked.append(1)
        return 429, {"error": {"message": "no money left", "code": "insufficient_quota"}}

    with StubEndpoint(broke) as endpoint, pytest.raises(ServiceError, match="no money left"):
        ask(endpoint.url)
    assert len(asked) == 1


# Errors about the length as servers and providers send them: status and body.
TOO_LONG = {
    "OpenAI": (400, {"error": {"message": "too long", "code": "context_length_exceeded"}}),
    "OpenAI, one text": (400, {"error": {"message": "Invalid 'messages[1].content': string too long."}}),
    "OpenAI, rate": (429, {"error": {"message": "Request too large for gpt-4o on tokens per min (TPM): Limit 9"}}),
    "Azure": (400, {"error": {"message": "This model's maximum context length is 8192 tokens", "code": "400"}}),
    "vLLM, old": (400, {"object": "error", "message": "This model's maximum context length is 2048 tokens."}),
    "vLLM, new": (400, {"error": {"message": "'max_tokens' or 'max_completion_tokens' is too large: 4096. This "
        "model's maximum context length is 4096 tokens and your request has 22 input tokens"}}),
    "vLLM, prompt": (400, {"error": {"message": "The decoder prompt (length 9000) is longer than the maximum model "
        "length of 8192."}}),
    "SGLang": (400, {"object": "error", "message": "The input (61709 tokens) is longer than the model's context "
        "length (40960 tokens).", "type": "BadRequestError", "code": 400}),
    "SGLang, both": (400, {"message": "Requested token count exceeds the model's maximum context length of 9."}),
    "TGI": (422, {"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000",
        "error_type": "validation"}),
    "TGI, inputs": (422, {"error": "Input validation error: `inputs` must have less than 4096 tokens. Given: 4545"}),
    "llama.cpp": (400, {"error": {"message": "request (9 tokens) exceeds the available context size (8 tokens)",
        "type": "exceed_context_size_error", "n_ctx": 8}}),
    "llama.cpp, server": (500, {"error": {"message": "Context size has been exceeded.", "type": "server_error"}}),
    "llama.cpp, status 200": (200, {"error": {"code": 400, "message": "the request exceeds the available context "
        "size. try increasing the context size or enable context shift"}}),
    "llama-cpp-python": (400, {"error": {"message": "Requested tokens (9) exceed context window of 8"}}),
    "LM Studio": (400, {"error": "Trying to keep the first 9000 tokens when context the overflows. However, the "
        "model is loaded with context length of only 4096 tokens, which is not enough."}),
    "LM Studio, new": (400, {"error": "The number of tokens to keep from the initial prompt is greater than the "
        "context length (n_keep: 10247 >= n_ctx: 4096)."}),
    "Ollama": (400, {"error": {"message": "input length exceeds maximum context length"}}),
    "Together": (422, {"error": {"message": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 9"}}),
    "Fireworks": (400, {"error": {"message": "The prompt is too long: 9000, model maximum context length: 8192"}}),
    "Groq": (400, {"error": {"message": "Please reduce the length of the messages or completion.", "param": "messages"}}),
    "Groq, rate": (413, {"error": {"message": "Request too large for model x on tokens per minute (TPM): Limit 6000"}}),
    "Mistral": (400, {"object": "error", "message": "Prompt contains 40000 tokens and 0 draft tokens, too large for "
        "model with 32768 maximum context length", "code": "3051"}),
    "Anthropic": (400, {"type": "error", "error": {"message": "prompt is too long: 202095 tokens > 200000 maximum"}}),
    "Anthropic, both": (400, {"error": {"message": "input length and `max_tokens` exceed context limit: 9 + 2 > 10"}}),
    "Gemini": (400, [{"error": {"code": 400, "status": "INVALID_ARGUMENT",
        "message": "The input token count (81881) exceeds the maximum number of tokens allowed (65536)."}}]),
    "Gemini, in text": (400, {"error": {"message": json.dumps({"error": {"message": "The input token count (9) "
        "exceeds the maximum number of tokens allowed (8)."}}), "code": 400}}),
    "OpenRouter": (400, {"error": {"message": "Provider returned error", "metadata": {"raw": json.dumps({"message":
        "This endpoint's maximum context length is 4096 tokens. However, you requested about 5000 tokens"})}}}),
    "LiteLLM": (400, {"error": {"message": "litellm.ContextWindowExceededError: input is too long", "type": None}}),
    "TensorRT-LLM": (400, {"message": "Cannot process new request: Prompt length (5056) exceeds maximum sequence "
        "length (2048)"}),
    "TensorRT-LLM, new": (400, {"message": "The sum of prompt length (9), query length (2) should not exceed "
        "max_num_tokens (10)"}),
    "NIM": (400, {"detail": [{"msg": "Input length 9000 exceeds maximum allowed token size 8192"}]}),
    "xAI": (400, {"error": "This model's maximum prompt length is 131072 but the request contains 140000 tokens."}),
    "Moonshot": (400, {"error": {"message": "Invalid request: Your request exceeded model token limit: 8192"}}),
    "Qwen": (400, {"error": {"message": "Range of input length should be [1, 30720]"}}),
    "Cohere": (400, {"message": "too many tokens: total number of tokens in the prompt cannot exceed 4081"}),
    "a proxy": (413, {"message": "Payload Too Large"}),
    "nginx": (413, b"<html><title>413 Request Entity Too Large</title></html>"),
}  # fmt: skip
# ruff: noqa: E501


def short_only(error):
    """Answer a short message, and every other one with an error."""
    return lambda request: "yes" if request["messages"] == [{"role": "user", "content": "Hello"}] else error


@pytest.mark.parametrize("provider", TOO_LONG)
def test_a_conversation_that_is_too_long(provider):
    with StubEndpoint(short_only(TOO_LONG[provider])) as endpoint, pytest.raises(ContextFull):
        ask(endpoint.url)
    assert not endpoint.requests  # known by its words, without another request


@pytest.mark.parametrize(
    "error",
    [
        (
            429,
            {
                "error": {
                    "message": "Rate limit reached: 9000 tokens per min. Please reduce the length of nothing"
                }
            },
        ),
        (429, {"error": {"message": "Too many tokens, please wait before trying again."}}),
        (503, {"error": {"message": "Model too busy"}}),
        (500, {"error": {"message": "something broke"}}),
        (200, {"error": {"message": "Rate limit exceeded: too many tokens per minute"}}),
    ],
)
def test_an_error_that_passes_is_not_about_the_length(error):
    answers = iter([error, "five"])
    with StubEndpoint(lambda request: next(answers)) as endpoint:
        (reply,) = ask(endpoint.url)
    assert reply.text == "five"


@pytest.mark.parametrize(
    "error",
    [
        (400, {"error": {"message": "the image at messages[0] cannot be decoded"}}),
        (422, {"detail": [{"loc": ["body", "messages", 0], "msg": "not valid"}]}),
        (500, {"error": {"message": "the chat template failed: roles must alternate"}}),
        (200, {"hello": 1}),
    ],
)
def test_an_error_of_one_conversation_is_not_one_of_the_endpoint(error):
    with (
        StubEndpoint(short_only(error)) as endpoint,
        pytest.raises(RequestRejected, match="not this conversation"),
    ):
        ask(endpoint.url, patience=Patience(0.2))


@pytest.mark.parametrize(
    ("content", "text", "reasoning"),
    [
        ([{"type": "text", "text": "five "}, {"type": "text", "text": "it is"}], "five it is", None),
        (
            [
                {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
                {"type": "text", "text": "5"},
            ],
            "5",
            "hm",
        ),
        ([{"type": "reasoning", "text": "hm"}, {"type": "output_text", "text": "5"}], "5", "hm"),
        (["a", {"type": "image_url", "image_url": {"url": "x"}}, None, 3], "a", None),
        ([{"type": "text", "text": {"value": "5", "annotations": []}}], "5", None),
        ([{"type": "refusal", "refusal": "no"}], "no", None),
        ({"type": "text", "text": "5"}, "5", None),
        ([], "", None),
        (None, "", None),
    ],
)
def test_content_as_a_list_of_parts(content, text, reasoning):
    def listed(request):
        body = completion(request, "")
        body["choices"][0]["message"]["content"] = content
        return 200, body

    with StubEndpoint(listed) as endpoint:
        (reply,) = ask(endpoint.url)
    assert reply.text == text
    assert reply.notes.get("reasoning") == reasoning


def test_a_request_that_is_rejected_is_reported_in_one_line():
    with (
        StubEndpoint(lambda request: (400, {"error": {"message": "temperature must be 1"}})) as endpoint,
        pytest.raises(ServiceError, match=r"rejects the request: .*temperature must be 1"),
    ):
        ask(endpoint.url)


def test_a_withheld_answer_is_an_empty_one():
    def withheld(request):
        return 400, {"error": {"message": "the prompt was filtered", "code": "content_filter"}}

    with StubEndpoint(withheld) as endpoint:
        (reply,) = ask(endpoint.url)
    assert reply.text == ""
    assert "filtered" in reply.notes["withheld"]


def test_newer_models_call_the_limit_by_another_name():
    def newer(request):
        if "max_tokens" in request:
            return 400, {"error": {"message": "Use 'max_completion_tokens' instead."}}
        return str(request["max_completion_tokens"])

    with StubEndpoint(newer) as endpoint:
        (reply,) = ask(endpoint.url)
    assert reply.text == "50"


def test_an_empty_answer_and_one_of_a_megabyte():
    with StubEndpoint(lambda request: (200, completion(request, None))) as endpoint:
        (reply,) = ask(endpoint.url)
    assert reply.text == ""
    with StubEndpoint(lambda request: "x" * 1_000_000) as endpoint:
        (reply,) = ask(endpoint.url)
    assert (len(reply.text), reply.finish_reason) == (40 * 50, "length")


def test_a_lone_surrogate_in_an_answer_is_repaired():
    def halves(request):
        body = completion(request, "a \ud83d b")
        body["choices"][0]["message"]["reasoning_content"] = "\udfff"
        return 200, body

    with StubEndpoint(halves) as endpoint:
        (reply,) = ask(endpoint.url)
    assert (reply.text, reply.notes) == ("a \ufffd b", {"reasoning": "\ufffd"})


def test_the_reasoning_that_an_endpoint_shows_is_kept():
    def thinking(request):
        body = completion(request, "5")
        body["choices"][0]["message"]["reasoning_content"] = "Five is in the middle."
        return 200, body

    with StubEndpoint(thinking) as endpoint:
        (reply,) = ask(endpoint.url)
    assert reply.notes == {"reasoning": "Five is in the middle."}


def test_images_and_extra_fields_of_a_body_are_sent_unchanged():
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    question = [{"role": "user", "content": [{"type": "text", "text": "What is it?"}, image]}]

    async def once(url: str) -> None:
        endpoint = Endpoint(
            "m", base_url=url, extra_body={"chat_template_kwargs": {"enable_thinking": False}}
        )
        await endpoint.reply(question, max_tokens=5, request_id="r")
        await endpoint.close()

    with StubEndpoint() as endpoint:
        asyncio.run(once(endpoint.url))
    (request,) = endpoint.requests
    assert request["messages"] == question
    assert request["chat_template_kwargs"] == {"enable_thinking": False}


def test_neither_an_address_nor_a_key(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ConfigError, match=r"'a-model' is not a folder.*--base-url or set OPENAI_API_KEY"):
        Endpoint("a-model")


# -- fields that an endpoint rejects ----------------------------------------------------------------

REJECTED = {
    "OpenAI": (400, {"message": "Unsupported parameter: 'FIELD' is not supported.", "param": "FIELD"}),
    "OpenAI, value": (400, {"message": "This value is not supported.", "param": "FIELD"}),
    "Azure": (400, {"message": "Unrecognized request argument supplied: FIELD"}),
    "Groq": (400, {"message": "property 'FIELD' is unsupported"}),
    "Google": (400, {"message": 'Unknown name "FIELD": Cannot find field.'}),
    "a list": (422, [{"type": "extra_forbidden", "loc": ["body", "FIELD"], "msg": "not permitted"}]),
    "FastAPI": (422, None),
    "not implemented": (501, {"message": "FIELD is not implemented"}),
}


@pytest.mark.parametrize("field", ["temperature", "seed", "max_tokens", "top_p", "logprobs"])
@pytest.mark.parametrize("server", REJECTED)
def test_an_error_that_names_a_field_says_how_to_leave_it_out(server, field, caplog):
    status, body = REJECTED[server]
    asked = []

    def strict(request):
        asked.append(request)
        if field in request:
            if body is None:
                return status, {"detail": [{"loc": ["body", field], "msg": "not permitted"}]}
            return status, json.loads(json.dumps({"error": body}).replace("FIELD", field))
        return "accepted"

    extra = {"logprobs": True}
    with StubEndpoint(strict) as endpoint:
        with pytest.raises(ServiceError) as raised:
            ask(endpoint.url, top_p=0.5, extra_body=extra)
        advice = f"""add --extra-body '{{"{field}": null}}'"""
        assert advice in str(raised.value)
        assert (len(asked), caplog.text) == (2, "")  # the question and a short one; not announced as a retry
        (reply,) = ask(endpoint.url, top_p=0.5, extra_body={**extra, field: None})
    assert reply.text == "accepted"
    assert set(asked[2]) == {"model", "messages", "seed", "temperature", "max_tokens", "top_p", *extra} - {
        field
    }


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
        (400, "Unrecognized request argument supplied: tools"),
        (404, "No endpoints found that support tool use."),
    ],
)
def test_an_endpoint_without_native_tools_says_which_option_to_omit(status, text):
    async def once(url):
        endpoint = Endpoint("m", base_url=url)
        tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
        try:
            await endpoint.reply(QUESTION, max_tokens=5, request_id="r", tools=[tool])
        finally:
            await endpoint.close()

    with (
        StubEndpoint(lambda request: (status, {"error": {"message": text}})) as endpoint,
        pytest.raises(ServiceError, match=r"; to send no tools, omit --native-tools$"),
    ):
        asyncio.run(once(endpoint.url))


@pytest.mark.parametrize(
    "address", ["127.0.0.1:8000/v1", "localhost", "ftp://host/v1", "http://", "http:///v1"]
)
@pytest.mark.parametrize("variable", [True, False])
def test_an_address_that_no_client_can_use_is_refused_at_once(address, variable, monkeypatch):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    if variable:
        monkeypatch.setenv("OPENAI_BASE_URL", address)
    with pytest.raises(ConfigError, match=r"base_url='.*': expected an address such as http://127"):
        Endpoint("m", base_url=None if variable else address)


def test_spaces_around_an_address_do_not_count():
    assert (
        Endpoint("m", base_url=" HTTP://127.0.0.1:8000/v1\n").address.lower() == "http://127.0.0.1:8000/v1/"
    )


def test_fields_of_a_request_can_be_replaced():
    changed = {"temperature": 0.25, "max_tokens": None, "max_completion_tokens": 7, "stop": ["\n"]}
    with StubEndpoint(lambda request: "x" * 10_000) as endpoint:
        (reply,) = ask(endpoint.url, extra_body=changed)
    (request,) = endpoint.requests
    assert {name: request.get(name) for name in changed} == changed
    assert (len(reply.text), reply.finish_reason) == (40 * 7, "length")  # the limit that was sent


@pytest.mark.parametrize("name", ["model", "messages", "tools", "stream", "n"])
def test_fields_that_decide_how_an_answer_is_read_cannot_be_changed(name):
    with pytest.raises(ConfigError, match=f"extra_body: {name} cannot be changed"):
        Endpoint("m", base_url="http://127.0.0.1:1/v1", extra_body={name: None})


def test_concurrent_requests_learn_the_other_name_of_the_limit_without_a_word(caplog):
    together = threading.Barrier(4)

    def newer(request):
        if "max_tokens" in request:
            together.wait(30)  # all are on the way before the first one is rejected
            return 400, {"error": {"message": "Use 'max_completion_tokens' instead of 'max_tokens'."}}
        return str(request["max_completion_tokens"])

    with StubEndpoint(newer) as endpoint:
        replies = ask(endpoint.url, times=4)
    assert [reply.text for reply in replies] == ["50"] * 4
    assert caplog.text == ""


# -- native tool calls ------------------------------------------------------------------------------


def answered(message: dict) -> ChatReply:
    """Return what the policy reads from a completion with that message."""

    def answer(request):
        body = completion(request, None)
        body["choices"][0]["message"] = {"role": "assistant", **message}
        body["choices"][0]["finish_reason"] = "tool_calls"
        return 200, body

    with StubEndpoint(answer) as endpoint:
        (reply,) = ask(endpoint.url)
    return reply


CALL = {"id": "a", "type": "function", "function": {"name": "python", "arguments": '{"code": "1"}'}}


@pytest.mark.parametrize(
    ("message", "calls"),
    [
        ({"content": None, "tool_calls": [CALL]}, [CALL]),
        ({"content": "", "tool_calls": [CALL, {**CALL, "id": "b"}]}, [CALL, {**CALL, "id": "b"}]),
        ({"tool_calls": [{"function": CALL["function"]}]}, [{**CALL, "id": "call_0"}]),
        ({"tool_calls": [{**CALL, "function": {"name": "f", "arguments": {"x": 1}}}]},
         [{**CALL, "function": {"name": "f", "arguments": '{"x": 1}'}}]),
        ({"tool_calls": [{**CALL, "function": {"name": "f"}}]},
         [{**CALL, "function": {"name": "f", "arguments": "{}"}}]),
        ({"tool_calls": [{"id": "a", "type": "custom", "custom": {"name": "f", "input": "1"}}]},
         [{**CALL, "function": {"name": "", "arguments": "{}"}}]),
        ({"content": None, "function_call": CALL["function"]}, [{**CALL, "id": "call_0"}]),
        ({"content": "Hello.", "tool_calls": None}, []),
        ({"content": "Hello.", "tool_calls": []}, []),
    ],
)  # fmt: skip
def test_native_calls_of_a_reply(message, calls):
    reply = answered(message)
    assert list(reply.tool_calls) == calls
    assert (reply.text, reply.finish_reason) == (message.get("content") or "", "stop")


def test_calls_beyond_the_token_limit_are_cut():
    long = {**CALL, "function": {"name": "python", "arguments": json.dumps({"code": "x" * 5000})}}
    reply = answered({"content": "So:", "tool_calls": [long]})
    assert (reply.text, reply.finish_reason, reply.tool_calls) == ("So:", "length", ())


def test_an_endpoint_on_this_machine_does_not_need_the_proxy(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "socks5://127.0.0.1:9")  # where nothing answers
    with StubEndpoint(lambda request: "five it is") as endpoint:
        assert ask(endpoint.url)[0].text == "five it is"


def test_other_endpoints_are_reached_through_the_proxy_which_errors_name(monkeypatch):
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with StubEndpoint(lambda request: "five it is") as proxy:
        address = proxy.url.removesuffix("/v1")
        monkeypatch.setenv("http_proxy", address)
        assert ask("http://server.example:8000/v1")[0].text == "five it is"
    with pytest.raises(
        ServiceError, match=rf"server.example:8000/v1/ through the proxy {address} does not answer"
    ):
        ask("http://server.example:8000/v1", patience=Patience(0.1))
